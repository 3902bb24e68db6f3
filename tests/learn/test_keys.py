"""JAX keys inside pickles: copied by their data and implementation."""

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

from adfpp.learn.keys import PickledByFields


@dataclass(frozen=True)
class Keyed(PickledByFields):
    """A key beside other fields."""

    rows: int
    rng_key: Any


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))])
def test_a_copied_key_gives_the_same_numbers(implementation: str, copied: Any) -> None:
    """The key of a copy has the same implementation and the same data; raw keys and other fields stay what they are."""
    key = jax.random.key(7, impl=implementation)
    again = copied(Keyed(3, key))
    assert type(again) is Keyed and again.rows == 3
    assert again.rng_key.dtype == key.dtype and again.rng_key.shape == ()
    np.testing.assert_array_equal(jax.random.key_data(again.rng_key), jax.random.key_data(key))
    raw = copied(Keyed(3, np.array([1, 2], np.uint32)))
    np.testing.assert_array_equal(raw.rng_key, [1, 2])
