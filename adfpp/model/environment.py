"""The closures, defaults and globals that a model depends on, beside its arguments, as a key for caches.

A program is read once and shared by all learners of the same model. A function that has read ``SCALE`` from its module,
or from the function around it, is another model once that value has changed, and its key differs then.
"""

import functools
import hashlib
import itertools
import types
from collections.abc import Hashable, Iterator
from typing import Any

import jax
import numpy as np

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_DIGESTED = 1 << 20  # bytes of an array up to which its content is part of the key, and not only its identity


class Same:
    """A part of a key: an object compared by equality if it can be hashed, else by identity. The key keeps it alive."""

    def __init__(self, value: Any) -> None:
        self.value = value
        try:
            self._hash = hash(value)
            self._by_value = True
        except TypeError:
            self._hash = hash((type(value), id(value)))
            self._by_value = False

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Same) or self._hash != other._hash:
            return False
        if self.value is other.value:
            return True
        return self._by_value and other._by_value and type(self.value) is type(other.value) and self._equal(other)

    def _equal(self, other: "Same") -> bool:
        try:
            return bool(self.value == other.value)
        except Exception:  # objects that cannot be compared count as different
            return False


def environment(model: object) -> tuple[Hashable, ...]:
    """Everything that a model reads beside its arguments, as a hashable key."""
    return tuple(_entries(model, set()))


def _entries(value: object, seen: set[int]) -> Iterator[Hashable]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, functools.partial):
        yield from _entries(value.func, seen)
        for part in (*value.args, *value.keywords.values()):
            yield from _described(part, seen)
    elif isinstance(value, types.MethodType):
        yield from _entries(value.__func__, seen)
        yield from _attributes(value.__self__, seen)
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value, seen)
    elif not isinstance(value, type):
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None:
            yield from _entries(wrapped, seen)
        yield from _attributes(value, seen)


def _of_function(function: types.FunctionType, seen: set[int]) -> Iterator[Hashable]:
    for cell in function.__closure__ or ():
        try:
            inside = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        yield from _described(inside, seen)
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield from _described(default, seen)
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            inside = function.__globals__[name]
            # functions of other modules are assumed not to change
            if not isinstance(inside, types.FunctionType) or inside.__module__ == function.__module__:
                yield name
                yield from _described(inside, seen)


def _names(code: types.CodeType) -> set[str]:
    """Global names in a function's code, and in the functions inside of it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _attributes(instance: object, seen: set[int]) -> Iterator[Hashable]:
    for name, value in sorted(getattr(instance, "__dict__", {}).items()):
        yield name
        yield from _described(value, seen)


def _described(value: object, seen: set[int]) -> Iterator[Hashable]:
    if isinstance(value, types.ModuleType):
        return
    if isinstance(value, _PLAIN):
        yield type(value), value
    elif isinstance(value, np.ndarray):
        if value.nbytes <= _DIGESTED and value.dtype != object:
            digest = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).hexdigest()
            yield value.shape, str(value.dtype), digest
        else:
            yield _Identity(value)
    elif isinstance(value, jax.Array):
        yield _Identity(value)
    elif isinstance(value, list | dict | set | tuple):
        if id(value) in seen:  # it contains itself
            return
        inside = seen | {id(value)}
        yield type(value), len(value)
        for part in itertools.chain(*value.items()) if isinstance(value, dict) else value:
            yield from _described(part, inside)
    elif isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        yield _Identity(value if isinstance(value, types.FunctionType) else getattr(value, "func", value))
        yield from _entries(value, seen)
    else:
        yield _Identity(value)


class _Identity:
    """A part of a key: an object compared by identity. The key keeps it alive, so that no other object gets its id."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return object.__hash__(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value
