"""Runs one case in this process and records what happened, stage by stage, as JSON."""

import hashlib
import inspect
import json
import re
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro
from numpyro.infer import init_to_uniform

import adfpp
from adfpp.judge.verdict import Grade
from benchmarks.models_tried.cases import RUNS, Case
from benchmarks.references import Reference, reference

RAN, REFUSED, CRASHED, LIMIT = "ran", "refused", "crashed", "time limit"
_HERE = Path(adfpp.__file__).parent
_REFERENCE = ("mean_error", "mcse", "worst", "sd_low", "sd_high", "right", "silently_wrong")

# What counts as a right posterior: errors of means in sds, relative errors of sds, up to 3 Monte-Carlo errors.
MEAN, SD, NOISE = 0.1, 0.1, 3.0
SILENTLY = 0.3  # sds by which a mean is off although the verdict is to trust it
_CLEAN = 1.02  # largest R-hat of a reference

Record = dict[str, Any]


def record_path(case: Case, cache: Path) -> Path:
    """The file of a case's record."""
    return cache / f"{re.sub(r'[^a-z0-9]+', '-', case.name.lower()).strip('-')}.json"


def versions() -> dict[str, str]:
    """The versions that a record depends on."""
    return {"adfpp": adfpp.__version__, "jax": jax.__version__, "numpyro": numpyro.__version__}


def digest(case: Case) -> str:
    """Differs if the source of the case's model, data or reference differs."""
    functions: list[Any] = [case.model, case.load]
    sampling = case.sampling
    settings: list[object] = [sorted(case.options.items())]
    if sampling is not None:
        settings += [sampling.draws, sampling.accept, sampling.dense]
        settings += [sampling.init.__name__] * (sampling.init is not init_to_uniform)
        functions += list(sampling.sampled or ())
    text = "".join(source for f in functions for source in _sources(f, set()))
    return hashlib.sha256((text + repr(settings)).encode()).hexdigest()[:16]


def _sources(function: Any, seen: set[str]) -> Iterator[str]:
    """The source of a function, and of all functions and constants of the benchmarks that it uses."""
    function = inspect.unwrap(getattr(function, "fn", function))
    if not isinstance(function, types.FunctionType) or not function.__module__.startswith("benchmarks"):
        return
    if function.__qualname__ in seen:
        return
    seen.add(function.__qualname__)
    yield inspect.getsource(function)
    yield repr([c.cell_contents for c in function.__closure__ or () if isinstance(c.cell_contents, str)])
    for name in sorted(_names(function.__code__)):
        used = function.__globals__.get(name)
        if isinstance(used, types.FunctionType):
            yield from _sources(used, seen)
        elif isinstance(used, np.ndarray | dict):
            yield repr(used)


def _names(code: types.CodeType) -> set[str]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def run_case(case: Case, cache: Path, quick: bool = False) -> Record:
    """Runs ADF and EP, checks them, and compares them with NUTS; writes the record after each stage.

    Args:
        case: The case.
        cache: The folder of the record and of NUTS's draws.
        quick: Whether to leave out the checks and the reference.
    """
    record: Record = {"name": case.name, "digest": digest(case), "versions": versions(), "outcome": LIMIT}
    record["quick"] = quick
    data = case.load()
    jax.block_until_ready(jax.jit(jax.random.normal)(jax.random.key(0)))  # JAX itself is warm
    found: dict[str, Any] = {}

    def stage(name: str, work: Callable[[], None]) -> bool:
        record["stage"] = name
        _write(record, case, cache)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                work()
        except Exception as error:  # the record is about errors
            record["outcome"], record["message"] = _outcome(error), f"{type(error).__name__}: {error}"
            record["where"] = _place(error)
            return False
        return True

    def learn(kind: str) -> None:
        learner = getattr(adfpp, kind.upper())(case.model, **case.options)
        result: Any = None
        seconds, work = [], []
        for _ in range(2):
            begin, busy = time.perf_counter(), time.process_time()
            result = learner.run(jax.random.key(0), progress_bar=False, **data)
            jax.block_until_ready(result.state)
            seconds.append(time.perf_counter() - begin)
            work.append(time.process_time() - busy)
        found[kind] = learner, result
        counts = np.bincount(np.asarray(result.info.status).reshape(-1).astype(int))
        marked = {adfpp.Status(s).name: int(c) for s, c in enumerate(counts) if s and c}
        record[kind] = {"first_seconds": seconds[0], "first_work": work[0], "seconds": seconds[1], "marked": marked}
        if kind == "ep":
            record[kind] |= {"converged": bool(result.info.converged), "sweeps": int(result.info.sweeps)}
        else:
            plan = learner.explain(**data)
            record["rows"], record["numbers"] = int(counts.sum()), plan.size
            record["fields"] = sorted({f.field_size for f in plan.factors})
            record["prior_fields"] = sorted({f.field_size for f in plan.priors})
            record["rules"] = sorted({f.why for f in plan.factors})
            record["local"] = [v.name for v in plan.local]

    def check(kind: str) -> None:
        begin = time.perf_counter()
        checked = adfpp.check(*found[kind], progress_bar=False, **data)
        record[kind] |= {
            "verdict": verdict_class(checked.verdict),
            "grade": str(checked.verdict),
            "reasons": list(checked.reasons),
            "check_seconds": time.perf_counter() - begin,
        }

    def compare() -> None:
        assert case.sampling is not None
        post = found["adf"][0].get_posterior(found["adf"][1])
        truth = reference(
            case.name.replace("/", "-"), case.model, data, post.program, case.sampling, cache / "draws", digest(case)
        )
        record["nuts"] = {
            "r_hat": truth.r_hat,
            "mcse": float(truth.mcse.max()),
            "divergences": truth.divergences,
            "seconds": truth.warm_seconds + truth.sampling_seconds,
            "clean": bool(truth.r_hat < _CLEAN),
        }
        for kind in found:
            learner, result = found[kind]
            record[kind] |= errors(learner.get_posterior(result), truth, record[kind].get("verdict", ""))

    stages = [("adf", lambda: learn("adf")), ("ep", lambda: learn("ep"))]
    if not quick:
        stages += [("check of adf", lambda: check("adf")), ("check of ep", lambda: check("ep"))]
        stages += [("reference", compare)] * (case.sampling is not None)
    if all(stage(name, work) for name, work in stages):
        record["outcome"] = RAN
        del record["stage"]
    _write(record, case, cache)
    return record


def errors(post: Any, truth: Reference, verdict: str) -> Record:
    """The errors of a posterior, and whether it is right within the reference's own error."""
    mean, sd = np.asarray(post.belief.mean), np.asarray(post.family.spread(post.belief, post.program.size))
    off, ratio = np.abs(mean - truth.mean) / truth.sd, sd / truth.sd
    worst = int(np.argmax(off))
    names = [f"{v.name}[{i}]" if v.size > 1 else v.name for v in post.program.latents for i in range(v.size)]
    means = bool(np.all(off <= MEAN + NOISE * truth.mcse))
    widths = bool(np.all(np.abs(ratio - 1) <= SD + NOISE * truth.sd_mcse))
    beyond = bool(np.any(off > SILENTLY + NOISE * truth.mcse))
    figures = (off[worst], truth.mcse[worst], names[worst], ratio.min(), ratio.max())
    plain = [float(f) if not isinstance(f, str) else f for f in figures]
    return dict(zip(_REFERENCE, [*plain, means and widths, beyond and verdict == "trust"], strict=True))


def verdict_class(grade: Grade) -> str:
    """The three classes of verdicts."""
    return {Grade.TRUST: "trust", Grade.DO_NOT_USE: "do not use"}.get(grade, "rough")


def _outcome(error: BaseException) -> str:
    """Whether adfpp refused the model itself, or an error came from below it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = Path(frames[-1].filename).is_relative_to(_HERE)
    return REFUSED if ours and isinstance(error, ValueError | TypeError | NotImplementedError) else CRASHED


def _place(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(_HERE)]
    return f"{Path(frames[-1].filename).relative_to(_HERE.parent)}:{frames[-1].name}" if frames else ""


def _write(record: Record, case: Case, cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    path = record_path(case, cache)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(record, indent=1), encoding="utf-8")
    new.replace(path)


def runs_under_numpyro(case: Case) -> dict[str, Any]:
    """NumPyro's trace of the case's model with its data, by shapes alone."""
    data = case.load()

    def visit(key: jax.Array) -> dict[str, Any]:
        model = numpyro.handlers.substitute(numpyro.handlers.seed(case.model, key), substitute_fn=init_to_uniform)
        found = numpyro.handlers.trace(model).get_trace(**data)
        return {name: site["value"] for name, site in found.items() if site["type"] == "sample"}

    return jax.eval_shape(visit, jax.random.key(0))


def expected(case: Case, record: Record) -> str:
    """How the outcome compares with what is expected, in words."""
    if record["outcome"] == RAN:
        return "ran" if case.expectation == RUNS else "accepted wrongly"
    if record["outcome"] != REFUSED:
        return record["outcome"]
    if case.expectation == RUNS:
        return "refused wrongly"
    return "refused rightly" if re.search(case.words, record["message"]) else "refused for another reason"
