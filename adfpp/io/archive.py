"""A checkpoint as a file: an uncompressed NumPy archive (``.npz``) with a JSON header; there is no pickle in it.

The file is written completely or not at all, and files of any other kind are refused with a message. The content of the
header is defined in `checkpoint` and `fingerprint`.
"""

import contextlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from adfpp._version import __version__

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"
Header: TypeAlias = dict[str, Any]  # JSON, as it is read back from a checkpoint

FORMAT = "adfpp checkpoint"
VERSION = 2  # of the format; version 1 had only ADF, and no site approximations of priors
_HEADER = "header"


class CheckpointError(ValueError):
    """A file that is not a checkpoint, or a checkpoint of another model, layout or version. The file is unchanged."""


class Archive(NamedTuple):
    """The content of a checkpoint file.

    Attributes:
        header: The JSON header, with at least "format_version" and "adfpp".
        arrays: The arrays by name.
    """

    header: Header
    arrays: dict[str, np.ndarray]


def write(path: Path, header: Mapping[str, Json], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a temporary file beside the given path, synchronises it with the disk, and renames it to the path."""
    identity: dict[str, Json] = {"format": FORMAT, "format_version": VERSION, "adfpp": __version__}
    contents = {**arrays, _HEADER: np.frombuffer(json.dumps({**identity, **header}).encode(), np.uint8)}
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            np.savez(file, allow_pickle=False, **contents)
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


def read(path: Path) -> Archive:
    """The header and the arrays of a checkpoint, after checking that the file is one.

    Raises:
        CheckpointError: If the file is missing, cut short, of a later format, or not a checkpoint.
    """
    if not path.exists():
        raise CheckpointError(f"There is no checkpoint {path}.")
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds one array")
            arrays = {name: archive[name] for name in archive.files} if _HEADER in archive.files else {}
        header = json.loads(arrays[_HEADER].tobytes()) if arrays else {}
    except (ValueError, EOFError, OSError, KeyError, zipfile.BadZipFile, zipfile.error, NotImplementedError) as error:
        cause = "is damaged or cut short" if _starts_as_archive(path) else "is not a checkpoint of adfpp"
        raise CheckpointError(
            f"{path} {cause} ({error}). The file is left as it is; start again under another name, or restore a copy."
        ) from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} is not a checkpoint of adfpp. The file is left as it is; choose another name for the checkpoint."
        )
    if header["format_version"] > VERSION:
        raise CheckpointError(
            f"{path} was written by adfpp {header['adfpp']} in format {header['format_version']}; this is adfpp "
            f"{__version__}, which reads formats up to {VERSION}. Install a newer adfpp. The file is left as it is."
        )
    return Archive(header, arrays)


def _starts_as_archive(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"
    return False


def is_key(leaf: np.ndarray | jax.Array) -> bool:
    """Whether a leaf of a state is a typed PRNG key."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def plain_array(leaf: np.ndarray | jax.Array) -> tuple[np.ndarray, str | None]:
    """A leaf of a state as a plain array, and the name of the generator if it is a typed PRNG key."""
    if is_key(leaf):
        return np.asarray(jax.random.key_data(leaf)), str(jax.random.key_impl(leaf))
    return np.asarray(leaf), None


def device_array(array: np.ndarray, generator: str | None) -> jax.Array:
    """The leaf from which ``plain_array`` made an array."""
    leaf = jnp.asarray(array)
    return leaf if generator is None else jax.random.wrap_key_data(leaf, impl=generator)


def packed(value: object, arrays: dict[str, np.ndarray]) -> Json:
    """A user's value as JSON, with its arrays stored in ``arrays``."""
    if isinstance(value, Mapping):
        return {"dict": [[str(k), packed(v, arrays)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [packed(v, arrays) for v in value]}
    if isinstance(value, np.ndarray | jax.Array):
        name = f"array{len(arrays)}"
        arrays[name] = np.asarray(value)
        return {"array": name}
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, str | int | float | bool | None):
        raise TypeError(
            f"A checkpoint keeps numbers, strings, arrays, lists and dictionaries; it cannot keep {value!r}."
        )
    return value


def unpacked(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The value that was passed to ``packed``, with lists in the place of tuples."""
    if not isinstance(value, dict):
        return value
    if "dict" in value:
        return {k: unpacked(v, arrays) for k, v in value["dict"]}
    if "list" in value:
        return [unpacked(v, arrays) for v in value["list"]]
    return arrays[value["array"]]
