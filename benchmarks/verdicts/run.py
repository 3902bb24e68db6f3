"""Runs one case: the learner, its check, and the distance of its posterior from the exact one."""

import hashlib
import inspect
import json
import re
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro
from numpyro.infer import init_to_median

import adfpp
from adfpp.judge.evidence import FACTOR, MEAN, MISLEADING, SD
from adfpp.judge.verdict import Grade
from benchmarks.references import Sampling, reference
from benchmarks.verdicts.cases import Case

Record = dict[str, Any]
CLEAN = 1.02  # largest R-hat of a reference
NOISE = 3.0  # Monte-Carlo errors of the reference that are added to a limit
TRUST, BETTER, DO_NOT_USE = "trust it", "run another method", "do not use it"


def versions() -> dict[str, str]:
    """The versions that a record depends on."""
    return {"adfpp": adfpp.__version__, "jax": jax.__version__, "numpyro": numpyro.__version__}


def digest(case: Case) -> str:
    """Differs if the source of the case's model or data differs."""
    text = inspect.getsource(case.simulated.model) + inspect.getsource(case.simulated.draw) + inspect.getsource(Case)
    return hashlib.sha256((text + case.name + case.group).encode()).hexdigest()[:16]


def record_path(case: Case, cache: Path) -> Path:
    """The file of a case's record."""
    return cache / case.group / f"{re.sub(r'[^a-z0-9]+', '-', case.name.lower()).strip('-')}.json"


def truth_path(case: Case, cache: Path) -> Path:
    """The file of the moments of a case's exact posterior."""
    return cache / case.group / f"{re.sub(r'[^a-z0-9]+', '-', case.posterior.lower()).strip('-')}.npz"


def run_case(case: Case, cache: Path) -> Record:
    """Runs a case and writes its record."""
    record: Record = {
        "name": case.name,
        "group": case.group,
        "model": case.simulated.name,
        "stream": case.stream,
        "learner": case.learner,
        "dtype": case.dtype,
        "digest": digest(case),
        "versions": versions(),
    }
    compiled: list[float] = []

    def count(event: str, duration_secs: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(duration_secs)

    data = case.data()
    learner = getattr(adfpp, case.learner)(case.simulated.model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = learner.run(jax.random.key(0), progress_bar=False, **data)
        post = learner.get_posterior(result)
        jax.monitoring.register_event_duration_secs_listener(count)
        begin, busy = time.perf_counter(), time.process_time()
        found = adfpp.check(learner, result, progress_bar=False, **data)
        record["seconds"], record["work"] = time.perf_counter() - begin, time.process_time() - busy
        jax.monitoring.unregister_event_duration_listener(count)
    record["programs"], record["compile_seconds"] = len(compiled), sum(compiled)
    record |= {"rows": len(data["y"]), "numbers": post.program.size, "grade": str(found.verdict)}
    record |= {"verdict": verdict_class(found.verdict), "reasons": list(found.reasons)}
    measured = found.measured
    assert measured is not None
    record["found"] = {
        "error": found.error,
        "sd_ratio": list(found.sd_ratio),
        "noise": measured.noise,
        "method": str(measured.method),
        "reliable": measured.reliable,
        "k_hat": found.k_hat,
        "ess": found.ess,
        "order": [found.order_shift, found.order_spread],
        "drift": list(found.drift),
        "calibration": found.pit_p,
    }
    each = (measured.shift, measured.shift_se, measured.log_ratio, measured.log_ratio_se)
    record["each"] = [np.asarray(a, float).tolist() for a in each]
    if not case.drifts:
        record |= errors(post, case, cache)
    path = record_path(case, cache)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1), encoding="utf-8")
    return record


def verdict_class(grade: Grade) -> str:
    """The three grades of a self-check."""
    return {Grade.TRUST: TRUST, Grade.DO_NOT_USE: DO_NOT_USE}.get(grade, BETTER)


def errors(post: Any, case: Case, cache: Path) -> Record:
    """The true errors of a posterior, in unconstrained space."""
    path = truth_path(case, cache)
    if path.exists():
        with np.load(path) as kept:
            truth = {name: kept[name] for name in kept.files}
    else:  # in float64, before the first case in float32
        sampling = Sampling(2500, case.simulated.accept, init=init_to_median, vectorized=True)
        nuts = reference(case.posterior, case.simulated.model, case.data(), post.program, sampling, None)
        truth = {"mean": nuts.mean, "sd": nuts.sd, "mcse": nuts.mcse, "sd_mcse": nuts.sd_mcse}
        truth |= {"r_hat": np.array(nuts.r_hat), "divergences": np.array(nuts.divergences)}
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, allow_pickle=False, **truth)
    mean, sd = (
        np.asarray(post.belief.mean, float),
        np.asarray(post.family.spread(post.belief, post.program.size), float),
    )
    off, ratio = np.abs(mean - truth["mean"]) / truth["sd"], sd / truth["sd"]
    worst, widest = int(np.argmax(off)), int(np.argmax(np.abs(np.log(ratio))))
    mean_noise, sd_noise = NOISE * truth["mcse"], NOISE * truth["sd_mcse"]
    return {
        "error": float(off[worst]),
        "mcse": float(truth["mcse"][worst]),
        "sd_ratio": float(ratio[widest]),
        "sd_mcse": float(truth["sd_mcse"][widest]),
        "r_hat": float(truth["r_hat"]),
        "divergences": int(truth["divergences"]),
        "within": bool((off <= MEAN).all() and (np.abs(ratio - 1.0) <= SD).all()),
        "beyond": bool((off > MEAN + mean_noise).any() or (np.abs(ratio - 1.0) > SD + sd_noise).any()),
        "misleading": bool((off > MISLEADING).any() or (np.abs(np.log(ratio)) > np.log(FACTOR)).any()),
    }


def is_unclean(record: Record) -> bool:
    """Whether the reference is not clean, so that nothing can be said about the posterior."""
    return record.get("r_hat", 1.0) > CLEAN


def is_false_trust(record: Record) -> bool:
    """Whether the verdict is to trust it, and an error is beyond the limits, or the parameters drift."""
    return record["verdict"] == TRUST and record.get("beyond", True)


def is_false_alarm(record: Record) -> bool:
    """Whether all errors are within the limits, and the verdict is not to trust it."""
    return record["verdict"] != TRUST and record.get("within", False)
