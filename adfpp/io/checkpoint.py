"""Checkpoints: a learner's state on disk, tied to the model and the layout of the data that it belongs to.

The file is an uncompressed NumPy archive (``.npz``) that holds a JSON header and the state's arrays bit for bit: no
pickle, nothing in it is ever run. The header keeps what the state is meaningful for: the latent sites, factors,
arguments, family and dynamics, and a few log-densities of the model at fixed points, so that a changed prior or
likelihood is noticed although its names and shapes are the same.
"""

import contextlib
import dataclasses
import hashlib
import inspect
import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from adfpp._version import __version__
from adfpp.engine.families import Product
from adfpp.learn.ep.ep import EP
from adfpp.learn.posterior import Posterior
from adfpp.model import Joint, Latent, Program, stripped
from adfpp.model.latents import theta_in_support

_FORMAT = "adfpp checkpoint"
_VERSION = 2
_ALONE = 2  # the first version that says which learner wrote it; before there was only ADF
_HEADER = "header"
_THETAS, _ROWS = 3, 4  # how many points and rows the model is probed at
_TOLERANCE = {"float64": 1e-6, "float32": 1e-3}  # relative: what another version of JAX may change
_SPELT_OUT = 64  # arrays up to this size are kept in the fingerprint as numbers, larger ones as a digest


class CheckpointError(ValueError):
    """A file that is no checkpoint, or one of another model, layout or version. The file is left as it is."""


class Checkpoint(NamedTuple):
    """What ``load`` gives back.

    Attributes:
        state: The learner's state, bit for bit as it was saved.
        progress: What ``save`` was told to keep beside it.
    """

    state: Any
    progress: dict[str, Any]


class Learner(Protocol):
    """What can be saved: ``ADF``, ``EP``, and whatever else has their methods."""

    @property
    def family(self) -> Any:
        """How the belief is held."""
        ...

    def init(self, rng_key: jax.Array, *args: Any, **kwargs: Any) -> Any:
        """The state before any row."""
        ...

    def get_posterior(self, state: Any) -> Posterior:
        """The posterior that a state holds."""
        ...


def save(path: str | os.PathLike[str], learner: Learner, state: Any, **progress: Any) -> None:
    """Writes a checkpoint, whole or not at all: a file of this name is replaced once the new one is safely on disk.

    Args:
        path: The file.
        learner: What made the state.
        state: The state, or the result that holds it.
        **progress: What else to keep: numbers, strings, arrays, and lists and dictionaries of them.
    """
    state = getattr(state, "state", state)
    arrays: dict[str, np.ndarray] = {}
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    described = []
    for i, (where, leaf) in enumerate(leaves):
        array, key_type = _stored(leaf)
        arrays[f"state{i}"] = array
        described.append({"name": jax.tree_util.keystr(where), "key": key_type})
    program = learner.get_posterior(state).program
    header = {
        "format": _FORMAT,
        "format_version": _VERSION,
        "adfpp": __version__,
        "state": described,
        "fingerprint": _fingerprint(learner, program),
        "probes": _probes(program),
        "progress": _packed(progress, arrays),
    }
    arrays[_HEADER] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    _write(Path(os.path.realpath(path)), arrays)


def load(path: str | os.PathLike[str], learner: Learner, *args: Any, **kwargs: Any) -> Checkpoint:
    """Reads a checkpoint back, after checking that it belongs to this learner, model and layout of the data.

    Args:
        path: The file.
        learner: Made with the same model and options as the one that was saved.
        *args: The model's arguments, as for ``init``: shapes only are read from the rows. ``EP`` keeps a site for each
            row, so these are all its rows.
        **kwargs: Its keyword arguments; also ``prior``, where the model's own prior is improper.

    Raises:
        CheckpointError: If it does not belong; the message says what differs and how to go on.
    """
    path = Path(path)
    header, arrays = _read(path)
    template = learner.init(jax.random.key(0), *args, **kwargs)
    program = learner.get_posterior(template).program
    there = header["fingerprint"]
    if header["format_version"] < _ALONE:
        there = {"learner": {"type": "ADF"}, **there}
    differences = _differences(there, _fingerprint(learner, program))
    if differences:
        raise _mismatch(path, differences)
    changed = _changed_probes(header["probes"], _probes(program), program)
    if changed:
        raise _mismatch(path, changed)
    leaves, treedef = jax.tree_util.tree_flatten_with_path(template)
    names = [jax.tree_util.keystr(where) for where, _ in leaves]
    saved = [s["name"] for s in header["state"]]
    if names != saved and header["format_version"] < _ALONE and [n for n in names if ".priors" not in n] == saved:
        raise CheckpointError(
            f"{path} was written by adfpp {header['adfpp']} in format {header['format_version']}, which kept no sites "
            "of priors that depend on other sites; this model has such priors, and its state cannot go on without "
            "them. Fold the rows again under another name, or go on with the adfpp that wrote it. The file is left as "
            "it is."
        )
    if names != saved:
        raise _mismatch(path, [f"the state is made of {saved} in the checkpoint and of {names} here"])
    restored = []
    for i, (entry, (_, leaf)) in enumerate(zip(header["state"], leaves, strict=True)):
        array = arrays[f"state{i}"]
        is_site = entry["name"].startswith(".sites")
        if is_site and array.shape[1:] == leaf.shape[1:] and len(array) != len(leaf):
            told = f"it holds sites of {len(array)} rows, and {len(leaf)} are given here: pass all the rows that it had"
            raise _mismatch(path, [told])
        # a key may be of another kind than the template's
        if not _is_key(leaf) and (array.shape != leaf.shape or array.dtype != leaf.dtype):
            there, here = f"{array.shape} {array.dtype}", f"{leaf.shape} {leaf.dtype}"
            raise _mismatch(path, [f"the state's {entry['name']} is {there} in the checkpoint and {here} here"])
        restored.append(array if isinstance(leaf, np.ndarray) else _restored(array, entry["key"]))
    return Checkpoint(jax.tree.unflatten(treedef, restored), _unpacked(header["progress"], arrays))


def peek(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The progress kept in a checkpoint, without a model to check it against."""
    header, arrays = _read(Path(path))
    return _unpacked(header["progress"], arrays)


# ---------------------------------------------------------------------------------------------- fingerprint


def _fingerprint(learner: Learner, program: Program) -> dict[str, Any]:
    """What the state is meaningful for, as JSON. Lists of named things are dictionaries, for readable differences."""
    layout, rows, shared = program.layout, iter(program.row_shapes), iter(_shared_shapes(program))
    arguments: dict[str, Any] = {}
    fixed = iter(layout.fixed)
    for i, (name, kind) in enumerate(zip(layout.names, layout.kinds, strict=True)):
        several = layout.names.count(name) > 1
        label = f"argument {name!r}" + (f", leaf {i - layout.names.index(name)}" if several else "")
        if kind == "fixed":
            arguments[label] = {"kind": kind, "value": _digested(next(fixed))}
        else:
            shape = next(rows if kind == "row" else shared)
            arguments[label] = {"kind": kind, "shape": list(shape.shape), "dtype": str(shape.dtype)}
    sites = {
        f"latent site {s.name!r}": {
            "place": i,
            "shape": list(s.shape),
            "unconstrained shape": list(s.unconstrained_shape),
            "transform": type(stripped(s.transform)).__name__,
            **_held(s),
        }
        for i, s in enumerate(program.latents)
    }
    factors = {
        f"factor {i} of a row": {"site": g.name, "count": g.count, "field size": g.field_size}
        for i, g in enumerate(program.factors)
    }
    options: dict[str, Any] = {
        "learner": _kind(learner),
        "precision": str(np.dtype(program.dtype)),
        "family": _family(program.family),
    }
    dynamics = getattr(learner, "dynamics", None)
    if dynamics is not None:
        options["dynamics"] = _described(dynamics)
    return _plain({**options, **sites, **factors, **arguments})


def _held(site: Latent) -> dict[str, Any]:
    """In which family of its own space a site is held, if it is."""
    if site.native is None:
        return {}
    return {"held as": site.native.name, **({"values": list(site.native.values)} if site.discrete else {})}


def _family(family: Any) -> dict[str, Any]:
    """A family as its name and its numbers, a product site by site."""
    if not isinstance(family, Product):
        return _described(family)
    return {"type": "Product", **{f"site {n!r}": p.family.name for p in family.parts for n in p.names}}


def _kind(learner: Learner) -> dict[str, Any]:
    """Which learner, and the options of ``EP`` that say what its sites stand for.

    How it gets there (damping, tolerance, sweeps, batches, the order of visits) may change from one call to the next.
    """
    out: dict[str, Any] = {"type": type(learner).__name__}
    if isinstance(learner, EP):
        sites = {"stochastic": "tied across rows", "window": "of the last rows"}.get(learner.schedule, "of each row")
        out |= {"power": float(learner.power), "sites": sites, "window": learner.window}
    return out


def _shared_shapes(program: Program) -> list[Any]:
    """Shape and dtype of each shared array."""
    return [variable.aval for variable in program.trace.inputs[len(program.row_shapes) :]]


def _described(strategy: Any) -> dict[str, Any]:
    """A frozen dataclass as its name and its numbers."""
    fields = {f.name: getattr(strategy, f.name) for f in dataclasses.fields(strategy)}
    return {"type": type(strategy).__name__, **{k: _digested(v) for k, v in fields.items()}}


def _digested(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _digested(v) for k, v in value.items()}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        if array.size <= _SPELT_OUT:
            return array.tolist()
        return f"{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    # the text of anything else may hold an address, which is another one next time
    return value if isinstance(value, str | int | float | bool | None) else type(value).__name__


def _differences(there: Any, here: Any, label: str = "") -> list[str]:
    """What differs between two fingerprints, in words."""
    if not (isinstance(there, dict) and isinstance(here, dict)):
        return [] if there == here else [f"{label} is {_spelt(there)} in the checkpoint and {_spelt(here)} here"]
    out = []
    for key in dict.fromkeys((*there, *here)):
        name = f"{label}: {key}" if label else key
        if key not in here:
            out.append(f"{name} is only in the checkpoint")
        elif key not in there:
            out.append(f"{name} is only here")
        else:
            out += _differences(there[key], here[key], name)
    return out


def _spelt(value: Any) -> str:
    return str(tuple(value)) if isinstance(value, list) else str(value)


# --------------------------------------------------------------------------------------------------- probes


@lru_cache(maxsize=4)
def _probes(program: Program) -> dict[str, Any]:
    """Values, log-priors and row log-likelihoods of the model at fixed θ and fixed, made-up arguments.

    Which numbers the arguments are is of no matter, as long as they are always the same: the log-densities need not be
    finite, only repeatable.
    """
    rows = [_filler((_ROWS, *s.shape), s.dtype) for s in program.row_shapes]
    if program.pinned is None:
        shared = [_filler(s.shape, s.dtype) for s in _shared_shapes(program)]
    else:
        shared = list(program.pinned)
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(_THETAS, program.size))
    for site in program.latents:
        if site.native is not None:  # normal draws need not lie in its space
            theta[:, site.where] = [
                theta_in_support(program.latents, rng, program.size)[site.where] for _ in range(_THETAS)
            ]
    theta = theta.astype(program.dtype)
    bound = program.layout.rebuild(rows, shared)
    parameters = inspect.signature(program.model).parameters
    first = [n for n, p in parameters.items() if p.kind == p.POSITIONAL_ONLY and n in bound]
    joint = Joint(program, tuple(bound.pop(n) for n in first), bound)
    found: dict[str, Any] = {"transforms": joint.log_volume(theta)}
    found |= {f"values of site {n!r}": v for n, v in program.constrain(jnp.asarray(theta)).items()}
    found |= {f"log prior of site {n!r}": v for n, v in joint.log_prior(theta).items()}
    found |= {f"log-likelihood of site {n!r}": v for n, v in joint.log_likelihood(theta).items()}
    return _plain({name: _summed(np.asarray(v)) for name, v in found.items()})


def _summed(values: np.ndarray) -> list[float]:
    """One number a θ: a weighted sum, so that elements that trade places are noticed."""
    flat = values.reshape(len(values), -1).astype(float)
    # made-up data may lie outside the support: what is not finite there must not hide the rest
    flat = np.where(np.isfinite(flat), flat, 0.0)
    return (flat @ np.linspace(1.0, 2.0, flat.shape[1])).tolist()


def _filler(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Fixed numbers that suit most arguments: 0 and 1 in turn, and in between for real numbers."""
    count = math.prod(shape)
    numbers = np.array([0.0, 1.0, 0.5, 0.25, 2.0]) if np.issubdtype(dtype, np.inexact) else np.array([0, 1])
    return np.resize(numbers, count).reshape(shape).astype(dtype)


def _changed_probes(there: Mapping[str, Any], here: Mapping[str, Any], program: Program) -> list[str]:
    tolerance = _TOLERANCE.get(str(np.dtype(program.dtype)), 1e-2)
    out = []
    for name, values in here.items():
        if not np.allclose(there.get(name, np.nan), values, tolerance, tolerance, equal_nan=True):
            out.append(f"{name}: the model gives other numbers than when the checkpoint was written")
    return out


def _mismatch(path: Path, differences: Sequence[str]) -> CheckpointError:
    listed = "; ".join(differences[:6]) + (f"; and {len(differences) - 6} more" if len(differences) > 6 else "")
    return CheckpointError(
        f"{path} belongs to another learner, model or layout of the data: {listed}. The file is left as it is. Go on "
        "with the learner, model, options and arguments that it was written with, or begin anew under another name; to "
        "take its belief into a changed model, load it with the old one and pass get_posterior(state) as prior= to the "
        "new one's init."
    )


# ----------------------------------------------------------------------------------------------------- file


def _stored(leaf: Any) -> tuple[np.ndarray, str | None]:
    """A leaf as a plain array, and the implementation's name if it is a typed PRNG key."""
    if _is_key(leaf):
        return np.asarray(jax.random.key_data(leaf)), str(jax.random.key_impl(leaf))
    return np.asarray(leaf), None


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _restored(array: np.ndarray, key_type: str | None) -> jax.Array:
    whole = jnp.asarray(array)
    return whole if key_type is None else jax.random.wrap_key_data(whole, impl=key_type)


def _write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Beside the file, synchronised, then renamed over it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            np.savez(file, allow_pickle=False, **dict(arrays))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # some systems cannot synchronise a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of a file, whatever the file is."""
    if not path.exists():
        raise CheckpointError(f"There is no checkpoint {path}.")
    try:
        with path.open("rb") as file:
            whole = np.load(file, allow_pickle=False)
            if not isinstance(whole, np.lib.npyio.NpzFile):
                raise ValueError("one array")
            names = whole.files
            arrays = {name: whole[name] for name in names} if _HEADER in names else {}
        header = json.loads(arrays[_HEADER].tobytes()) if arrays else {}
    except (ValueError, EOFError, OSError, KeyError, zipfile.BadZipFile, zipfile.error, NotImplementedError) as error:
        begins_as_one = _begins_as_archive(path)
        cause = "is damaged or cut short" if begins_as_one else "is not a checkpoint of adfpp"
        raise CheckpointError(
            f"{path} {cause} ({error}). The file is left as it is; begin anew under another name, or put back a copy."
        ) from error
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise CheckpointError(
            f"{path} is not a checkpoint of adfpp. The file is left as it is; choose another name for the checkpoint."
        )
    if header["format_version"] > _VERSION:
        raise CheckpointError(
            f"{path} was written by adfpp {header['adfpp']} in format {header['format_version']}; this is adfpp "
            f"{__version__}, which reads formats up to {_VERSION}. Install a newer adfpp. The file is left as it is."
        )
    return header, arrays


def _begins_as_archive(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"
    return False


def _packed(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """JSON, with arrays moved out into the archive."""
    if isinstance(value, Mapping):
        return {"dict": [[str(k), _packed(v, arrays)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_packed(v, arrays) for v in value]}
    if isinstance(value, np.ndarray | jax.Array):
        name = f"array{len(arrays)}"
        arrays[name] = np.asarray(value)
        return {"array": name}
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, str | int | float | bool | None):
        raise TypeError(f"A checkpoint keeps numbers, strings, arrays, lists and dictionaries; not {value!r}.")
    return value


def _unpacked(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if not isinstance(value, dict):
        return value
    if "dict" in value:
        return {k: _unpacked(v, arrays) for k, v in value["dict"]}
    if "list" in value:
        return [_unpacked(v, arrays) for v in value["list"]]
    return arrays[value["array"]]


def _plain(value: Any) -> Any:
    """As it comes back from JSON, so that what was written and what is made anew compare equal."""
    return json.loads(json.dumps(value))
