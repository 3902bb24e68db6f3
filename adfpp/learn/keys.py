"""JAX keys inside pickles: typed keys cannot be pickled themselves, so their data and implementation are."""

from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def _is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


class _Key:
    """A typed key as data."""

    def __init__(self, key: jax.Array) -> None:
        self.data, self.implementation = np.asarray(jax.random.key_data(key)), str(jax.random.key_impl(key))

    def key(self) -> jax.Array:
        """The key again."""
        return jax.random.wrap_key_data(jnp.asarray(self.data), impl=self.implementation)


def without_keys(values: Any) -> list[Any]:
    """The values with every key replaced by something that can be pickled."""
    return [_Key(v) if _is_key(v) else v for v in values]


def rebuilt(kind: Any, values: list[Any]) -> Any:
    """An object of this class with these values, keys restored."""
    return kind(*(v.key() if isinstance(v, _Key) else v for v in values))


class PickledByFields:
    """A mixin for frozen dataclasses that hold a key: copies and pickles go by its fields."""

    def __reduce__(self) -> tuple[Any, ...]:
        """The class, and the values of its fields."""
        return rebuilt, (type(self), without_keys([getattr(self, f.name) for f in fields(self)]))  # pyright: ignore
