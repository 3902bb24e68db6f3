"""Identifies the learner, the model and the layout of the arguments that a state belongs to, as JSON.

There are two parts. The *fingerprint* has the latents, factors, arguments, family and dynamics. The *probes* are
log-densities of the model at a few fixed points, which reveal a changed prior or likelihood even if names and shapes
are the same. Both are kept in checkpoints. Their words are part of the format and must not be changed; ``differences``
translates them into the words of the documentation.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from adfpp.engine.families import Family
from adfpp.io.archive import Json
from adfpp.learn.posterior import Posterior
from adfpp.model import Joint, Latent, Program, stripped
from adfpp.model.arguments import signature_of
from adfpp.model.latents import theta_in_support

T = TypeVar("T")

_POINTS, _ROWS = 3, 4  # numbers of points and rows of the probes; few are enough, as one of each shows most changes
_TOLERANCE = {"float64": 1e-6, "float32": 1e-3}  # relative: another version of JAX may change the last digits
_SPELT_OUT = 64  # arrays up to this size are kept as numbers, which a message can show, and larger ones as a digest


class Learner(Protocol):
    """A learner whose state can be saved: ``ADF``, ``EP``, or any class with these methods."""

    def init(self, rng_key: jax.Array, *args: Any, **kwargs: Any) -> Any:
        """The state before any row."""
        ...

    def get_posterior(self, state: Any) -> Posterior:
        """The posterior of a state."""
        ...


def fingerprint(learner: Learner, program: Program) -> dict[str, Json]:
    """A description of the learner and the model for which a state is valid, without the model's numbers.

    Args:
        learner: The learner that made the state.
        program: Its model, as it was read.
    """
    entries: dict[str, Json] = {
        "learner": _learner(learner),
        "precision": str(np.dtype(program.dtype)),
        "family": _family(program.family),
    }
    dynamics = getattr(learner, "dynamics", None)
    if dynamics is not None:
        entries["dynamics"] = _described(dynamics)
    entries |= {f"latent site {s.name!r}": {"place": i, **_latent(s)} for i, s in enumerate(program.latents)}
    entries |= {
        f"factor {i} of a row": {"site": f.name, "count": f.count, "field size": f.field_size}
        for i, f in enumerate(program.factors)
    }
    return _as_read_back({**entries, **dict(_arguments(program))})


def differences(there: Mapping[str, Json], here: Mapping[str, Json]) -> list[str]:
    """The differences between the fingerprint in a checkpoint and this one, in words."""
    return list(_differences(dict(there), dict(here), ""))


@lru_cache(maxsize=4)  # a stream saves its state again and again
def probes(program: Program) -> dict[str, Any]:
    """Values, log-priors and row log-likelihoods of the model at fixed θ and fixed, invented arguments.

    The values of the arguments do not matter as long as they are always the same: the log-densities need not be finite,
    only repeatable.
    """
    rows = [_invented((_ROWS, *s.shape), s.dtype) for s in program.row_shapes]
    if program.pinned is None:
        shared = [_invented(s.shape, s.dtype) for s in program.shared_shapes]
    else:
        shared = list(program.pinned)
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(_POINTS, program.size))
    for latent in program.latents:
        if latent.native is not None:  # normal draws need not lie in its native space
            theta[:, latent.where] = [
                theta_in_support(program.latents, rng, program.size)[latent.where] for _ in range(_POINTS)
            ]
    theta = theta.astype(program.dtype)
    bound = program.layout.rebuild(rows, shared)
    parameters = signature_of(program.model).parameters
    first = [n for n, p in parameters.items() if p.kind == p.POSITIONAL_ONLY and n in bound]
    joint = Joint(program, tuple(bound.pop(n) for n in first), bound)
    values: dict[str, npt.ArrayLike] = {"transforms": joint.log_volume(theta)}
    values |= {f"values of site {n!r}": v for n, v in program.constrain(jnp.asarray(theta)).items()}
    values |= {f"log prior of site {n!r}": v for n, v in joint.log_prior(theta).items()}
    values |= {f"log-likelihood of site {n!r}": v for n, v in joint.log_likelihood(theta).items()}
    return _as_read_back({name: _summed(np.asarray(v)) for name, v in values.items()})


def changed_probes(there: Mapping[str, npt.ArrayLike], program: Program) -> list[str]:
    """The probes whose values differ from those in a checkpoint, in words."""
    tolerance = _TOLERANCE.get(str(np.dtype(program.dtype)), 1e-2)
    return [
        f"{_worded(name)}: the model gives other numbers than when the checkpoint was written"
        for name, values in probes(program).items()
        if not np.allclose(there.get(name, np.nan), values, tolerance, tolerance, equal_nan=True)
    ]


# ---------------------------------------------------------------------------------------------- fingerprint


def _learner(learner: Learner) -> dict[str, Json]:
    """The type of a learner and, if it visits rows again, the meaning of its site approximations.

    Options of the iteration (damping, tolerance, sweeps, batches, the order of visits) may change between calls.
    """
    out: dict[str, Json] = {"type": type(learner).__name__}
    power, schedule = getattr(learner, "power", None), getattr(learner, "schedule", None)
    if power is not None and schedule is not None:
        sites = {"stochastic": "tied across rows", "window": "of the last rows"}.get(schedule, "of each row")
        out |= {"power": float(power), "sites": sites, "window": getattr(learner, "window", None)}
    return out


def _family(family: Family) -> dict[str, Json]:
    """A family as its name and its numbers; a product family as the families of the latents."""
    parts = getattr(family, "parts", None)
    if parts is None:
        return {"name": family.name, **_described(family)}
    return {"type": type(family).__name__, **{f"site {n!r}": p.family.name for p in parts for n in p.names}}


def _latent(latent: Latent) -> dict[str, Json]:
    out: dict[str, Json] = {
        "shape": list(latent.shape),
        "unconstrained shape": list(latent.unconstrained_shape),
        "transform": type(stripped(latent.transform)).__name__,
    }
    if latent.native is not None:
        out["held as"] = latent.native.name
        if latent.discrete:
            out["values"] = list(latent.native.values)
    return out


def _arguments(program: Program) -> Iterator[tuple[str, dict[str, Json]]]:
    """The arguments of the model: the values of constants, and the shapes of arrays."""
    layout, rows, shared = program.layout, iter(program.row_shapes), iter(program.shared_shapes)
    fixed = iter(layout.fixed)
    for i, (name, kind) in enumerate(zip(layout.names, layout.kinds, strict=True)):
        several = layout.names.count(name) > 1
        label = f"argument {name!r}" + (f", leaf {i - layout.names.index(name)}" if several else "")
        if kind == "fixed":
            yield label, {"kind": kind, "value": _digested(next(fixed))}
        elif kind == "count":
            yield label, {"kind": kind}
        else:
            shape = next(rows if kind == "row" else shared)
            yield label, {"kind": kind, "shape": list(shape.shape), "dtype": str(shape.dtype)}


def _described(strategy: Any) -> dict[str, Json]:
    """A frozen dataclass as its name and its numbers."""
    fields = {f.name: getattr(strategy, f.name) for f in dataclasses.fields(strategy)}
    return {"type": type(strategy).__name__, **{k: _digested(v) for k, v in fields.items()}}


def _digested(value: object) -> Json:
    if isinstance(value, Mapping):
        return {str(k): _digested(v) for k, v in value.items()}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        if array.size <= _SPELT_OUT:
            return array.tolist()
        return f"{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    # the text of other objects may contain an address, which differs from process to process
    return value if isinstance(value, str | int | float | bool | None) else type(value).__name__


def _as_read_back(value: dict[str, T]) -> dict[str, T]:
    """A value after a round trip through JSON, so that it can be compared with a value that was read from a file."""
    return json.loads(json.dumps(value))


# The words of the checkpoint format, and the words that messages use instead.
_WORDS = (
    (r"^latent site ", "latent "),
    (r"^(values|log prior) of site ", r"\1 of latent "),
    (r"^log-likelihood of site ", "log-likelihood of observation "),
    (r"^family: site ", "family: latent "),
    (r"^(factor \d+ of a row): site$", r"\1: observation"),
    (r"^(latent .*): held as$", r"\1: family in native space"),
    (r"^(learner): sites$", r"\1: kind of site approximations"),
)


def _worded(name: str) -> str:
    for pattern, words in _WORDS:
        name = re.sub(pattern, words, name)
    return name


def _differences(there: Json, here: Json, name: str) -> Iterator[str]:
    if isinstance(there, dict) and isinstance(here, dict):
        for key in dict.fromkeys((*there, *here)):
            label = _worded(f"{name}: {key}" if name else key)
            if key not in here:
                yield f"{label} is only in the checkpoint"
            elif key not in there:
                yield f"{label} is only here"
            else:
                yield from _differences(there[key], here[key], label)
    elif there != here:
        yield f"{name} is {_spelt(there)} in the checkpoint and {_spelt(here)} here"


def _spelt(value: Json) -> str:
    return str(tuple(value)) if isinstance(value, list) else str(value)


# --------------------------------------------------------------------------------------------------- probes


def _summed(values: np.ndarray) -> list[float]:
    """One number for each θ: a weighted sum, so that exchanged elements are noticed."""
    flat = values.reshape(len(values), -1).astype(float)
    # invented data may lie outside the support; values that are not finite must not hide the others
    flat = np.where(np.isfinite(flat), flat, 0.0)
    return (flat @ np.linspace(1.0, 2.0, flat.shape[1])).tolist()


def _invented(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Fixed numbers that suit most arguments: 0 and 1 in turn, and others in between for real numbers."""
    count = math.prod(shape)
    numbers = np.array([0.0, 1.0, 0.5, 0.25, 2.0]) if np.issubdtype(dtype, np.inexact) else np.array([0, 1])
    return np.resize(numbers, count).reshape(shape).astype(dtype)
