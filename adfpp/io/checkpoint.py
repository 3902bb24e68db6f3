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

_NAMED_LEARNER = 2  # the first format that says which learner wrote the file; before, there was only ADF
_SHOWN = 6  # differences that one message lists


class Checkpoint(NamedTuple):
    """What ``load`` returns.

    Attributes:
        state: The state of the learner, bit for bit as it was saved.
        progress: What ``save`` was given to keep beside it.
    """

    state: Any
    progress: dict[str, Any]


def save(path: str | os.PathLike[str], learner: Learner, state: object, **progress: object) -> None:
    """Writes a checkpoint, whole or not at all: a file of this name is replaced once the new one is safely on disk.

    Example:
        ::

            adfpp.save("state.ckpt", adf, state, rows=1000)
            state, progress = adfpp.load("state.ckpt", adfpp.ADF(model), X[:1], y=y[:1])

    Args:
        path: The file.
        learner: What made the state.
        state: The state, or the result that holds it.
        **progress: What else to keep: numbers, strings, arrays, and lists and dictionaries of them.
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
        **kwargs: The model's keyword arguments; also ``prior``, where the model's own prior is improper.

    Raises:
        CheckpointError: If it does not belong; the message says what differs and how to continue.
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
    _check_names(path, header, [jax.tree_util.keystr(where) for where, _ in leaves])
    restored = []
    for i, (entry, (_, leaf)) in enumerate(zip(header["state"], leaves, strict=True)):
        array = arrays[f"state{i}"]
        _check_array(path, entry["name"], array, leaf)
        restored.append(array if isinstance(leaf, np.ndarray) else archive.device_array(array, entry["key"]))
    return Checkpoint(jax.tree.unflatten(treedef, restored), archive.unpacked(header["progress"], arrays))


def peek(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The progress that is kept in a checkpoint, without a model to check it against."""
    header, arrays = archive.read(Path(path))
    return archive.unpacked(header["progress"], arrays)


def _check_names(path: Path, header: archive.Header, names: Sequence[str]) -> None:
    """Refuses a state that is made of other arrays than the learner's."""
    saved = [entry["name"] for entry in header["state"]]
    if names == saved:
        return
    if header["format_version"] < _NAMED_LEARNER and [n for n in names if ".priors" not in n] == saved:
        raise CheckpointError(
            f"{path} was written by adfpp {header['adfpp']} in format {header['format_version']}, which did not keep "
            "the site approximations of priors that depend on other latents. This model has such priors, and its state "
            "cannot be continued without them. Absorb the rows again into a checkpoint of another name, or continue "
            "with the adfpp that wrote this one. The file is left as it is."
        )
    raise _mismatch(path, [f"the state is made of {saved} in the checkpoint and of {names} here"])


def _check_array(path: Path, name: str, array: np.ndarray, leaf: np.ndarray | jax.Array) -> None:
    """Refuses an array of another shape or dtype than the learner's; a PRNG key may be of another kind."""
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
        "another name. To take its belief into a changed model, load it with the old model and pass "
        "get_posterior(state) as prior= to the init of the new one."
    )
