"""Pickles JAX keys. A typed key cannot be pickled itself, so its data and the name of its implementation are."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import TypeGuard, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")


def _is_key(value: object) -> TypeGuard[jax.Array]:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


class _Key:
    """The data of a typed key, which can be pickled."""

    def __init__(self, key: jax.Array) -> None:
        self.data, self.implementation = np.asarray(jax.random.key_data(key)), str(jax.random.key_impl(key))

    def key(self) -> jax.Array:
        """Makes the key from its data."""
        return jax.random.wrap_key_data(jnp.asarray(self.data), impl=self.implementation)


def without_keys(values: Iterable[object]) -> list[object]:
    """Replaces every key among the values by something that can be pickled."""
    return [_Key(v) if _is_key(v) else v for v in values]


def rebuilt(kind: Callable[..., T], values: Iterable[object]) -> T:
    """Makes an object of this class from these values, with the keys restored."""
    return kind(*(v.key() if isinstance(v, _Key) else v for v in values))


class PickledByFields:
    """A mixin for frozen dataclasses that contain a key: they are copied and pickled field by field."""

    def __reduce__(self) -> tuple[object, ...]:
        """The class, and the values of its fields."""
        return rebuilt, (type(self), without_keys([getattr(self, f.name) for f in fields(self)]))  # pyright: ignore
