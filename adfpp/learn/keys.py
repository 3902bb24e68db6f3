"""Checks the random keys that users pass, and pickles keys.

A typed key cannot be pickled itself, so its data and the name of its implementation are.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, TypeGuard, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")


def checked_key(rng_key: object, method: str | None = None) -> jax.Array:
    """Returns a key, of either style, and makes one of a whole number.

    Args:
        rng_key: The argument that the user passed as ``rng_key``.
        method: The method, in words, if the key is its first argument, where the data may stand by mistake.

    Raises:
        TypeError: When it is none of these.
    """
    shape, dtype = getattr(rng_key, "shape", ()), getattr(rng_key, "dtype", None)
    if dtype is None:
        if isinstance(rng_key, int) and not isinstance(rng_key, bool):
            return jax.random.key(rng_key)
        given = f"a {type(rng_key).__name__}"
    else:
        array: Any = rng_key
        if jnp.issubdtype(dtype, jax.dtypes.prng_key) and shape == ():
            return array
        if shape == () and jnp.issubdtype(dtype, jnp.integer):
            return jax.random.key(array)
        if dtype == jnp.uint32 and shape == jax.random.key_data(jax.random.key(0)).shape:
            return jnp.asarray(array)
        given = f"an array of shape {tuple(shape)} and dtype {dtype}"
    missing = ""
    if method is not None:
        missing = f" It comes before the arguments of the model: {method}(jax.random.key(0), ...). Was it left out?"
    raise TypeError(f"rng_key must be a JAX key, such as jax.random.key(0), or a whole number; it is {given}.{missing}")


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
