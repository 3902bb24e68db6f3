"""Checkpoints: the state of a learner on disk, bit for bit, tied to the model and the layout of its arguments."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from adfpp.io import archive
from adfpp.io.archive import CheckpointError as CheckpointError
from adfpp.io.fingerprint import Learner, changed_probes, differences, fingerprint, probes

_NAMED_LEARNER = 2  # the first format that names the learner; files of earlier formats are from ADF
_OPTIONAL = ".prior_status"  # arrays that earlier releases did not write; without them, nothing is known to be wrong
_SHOWN = 6  # the largest number of differences that one message lists


class Checkpoint(NamedTuple):
    """A checkpoint that ``load`` has read.

    Attributes:
        state: The state of the learner, bit for bit as it was saved.
        progress: The values that ``save`` was given to keep beside the state.
    """

    state: Any
    progress: dict[str, Any]


def save(path: str | os.PathLike[str], learner: Learner, state: object, **progress: object) -> None:
    """Writes a checkpoint. An existing file of this name is replaced only when the new one is safely on disk.

    Example:
        ::

            adfpp.save("state.ckpt", adf, state, rows=1000)
            state, progress = adfpp.load("state.ckpt", adfpp.ADF(model), X[:1], y=y[:1])

    Args:
        path: The file.
        learner: The learner that made the state.
        state: The state, or a result that contains it.
        **progress: Other values to keep: numbers, strings, arrays, and lists and dictionaries of them.
    """
    state = getattr(state, "state", state)
    arrays: dict[str, np.ndarray] = {}
    entries: list[archive.Json] = []
    for i, (where, leaf) in enumerate(jax.tree_util.tree_flatten_with_path(state)[0]):
        arrays[f"state{i}"], generator = archive.plain_array(leaf)
        entries.append({"name": jax.tree_util.keystr(where), "key": generator})
    program = learner.get_posterior(state).program
    header: dict[str, archive.Json] = {
        "state": entries,
        "fingerprint": fingerprint(learner, program),
        "probes": probes(program),
        "progress": archive.packed(progress, arrays),
    }
    archive.write(Path(os.path.realpath(path)), header, arrays)


def load(path: str | os.PathLike[str], learner: Learner, *args: Any, **kwargs: Any) -> Checkpoint:
    """Reads a checkpoint, after checking that it belongs to this learner, model and layout of the arguments.

    Args:
        path: The file.
        learner: A learner with the same model and options as the one that was saved.
        *args: The model's arguments, as for ``init``. Only the shapes of the rows matter. ``EP`` keeps a site
            approximation of each row, so it needs all of its rows.
        **kwargs: The model's keyword arguments; also ``prior``, if the model's own prior is improper.

    Raises:
        CheckpointError: If the checkpoint does not belong to them; the message says what differs and what to do.
    """
    path = Path(path)
    header, arrays = archive.read(path)
    template = learner.init(jax.random.key(0), *args, **kwargs)
    program = learner.get_posterior(template).program
    written = header["fingerprint"]
    if header["format_version"] < _NAMED_LEARNER:
        written = {"learner": {"type": "ADF"}, **written}
    wrong = differences(written, fingerprint(learner, program)) or changed_probes(header["probes"], program)
    if wrong:
        raise _mismatch(path, wrong)
    leaves, treedef = jax.tree_util.tree_flatten_with_path(template)
    saved = {entry["name"]: (arrays[f"state{i}"], entry["key"]) for i, entry in enumerate(header["state"])}
    names = [jax.tree_util.keystr(where) for where, _ in leaves]
    if not any(name.startswith(_OPTIONAL) for name in saved):
        own = zip(names, leaves, strict=True)
        saved |= {name: archive.plain_array(leaf) for name, (_, leaf) in own if name.startswith(_OPTIONAL)}
    _check_names(path, header, list(saved), names)
    restored = []
    for name, (_, leaf) in zip(names, leaves, strict=True):
        array, generator = saved[name]
        _check_array(path, name, array, leaf)
        restored.append(array if isinstance(leaf, np.ndarray) else archive.device_array(array, generator))
    return Checkpoint(jax.tree.unflatten(treedef, restored), archive.unpacked(header["progress"], arrays))


def peek(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The progress that is kept in a checkpoint, without a model to check it against."""
    header, arrays = archive.read(Path(path))
    return archive.unpacked(header["progress"], arrays)


def _check_names(path: Path, header: archive.Header, saved: Sequence[str], names: Sequence[str]) -> None:
    """Refuses a state whose arrays have other names than those of the learner's state."""
    if sorted(names) == sorted(saved):
        return
    if header["format_version"] < _NAMED_LEARNER and {n for n in names if ".priors" not in n} == set(saved):
        raise CheckpointError(
            f"{path} was written by adfpp {header['adfpp']} in format {header['format_version']}, which did not keep "
            "the site approximations of priors that depend on other latents. This model has such priors, and its state "
            "cannot be continued without them. Absorb the rows again into a checkpoint of another name, or continue "
            "with the adfpp that wrote this one. The file is left as it is."
        )
    raise _mismatch(path, [f"the state is made of {saved} in the checkpoint and of {names} here"])


def _check_array(path: Path, name: str, array: np.ndarray, leaf: np.ndarray | jax.Array) -> None:
    """Refuses an array of another shape or dtype than the learner's, except for PRNG keys of another kind."""
    if archive.is_key(leaf) or (array.shape == leaf.shape and array.dtype == leaf.dtype):
        return
    if name.startswith(".sites") and array.shape[1:] == leaf.shape[1:] and array.dtype == leaf.dtype:
        cause = (
            f"it holds site approximations of {len(array)} rows, and {len(leaf)} rows are given here: pass all the "
            "rows that it had"
        )
    else:
        there, here = f"{array.shape} {array.dtype}", f"{leaf.shape} {leaf.dtype}"
        cause = f"the state's {name} is {there} in the checkpoint and {here} here"
    raise _mismatch(path, [cause])


def _mismatch(path: Path, causes: Sequence[str]) -> CheckpointError:
    listed = "; ".join(causes[:_SHOWN]) + (f"; and {len(causes) - _SHOWN} more" if len(causes) > _SHOWN else "")
    return CheckpointError(
        f"{path} belongs to another learner, model or layout of the arguments: {listed}. The file is left as it is. "
        "Continue with the learner, model, options and arguments that it was written with, or start again under "
        "another name. To use its belief in a changed model, load it with the old model and pass "
        "get_posterior(state) as prior= to the init of the new one."
    )
