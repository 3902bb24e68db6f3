"""JAX keys: what users may pass, and copies and pickles by data and implementation."""

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import adfpp
from adfpp.learn.keys import PickledByFields, checked_key
from tests import models


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


@pytest.mark.parametrize("key", [jax.random.key(7), jax.random.key(7, impl="rbg"), jax.random.PRNGKey(7)])
def test_keys_of_both_styles_are_taken(key: jax.Array) -> None:
    """As they are."""
    taken = checked_key(key, "adf.init")
    assert taken.dtype == key.dtype
    np.testing.assert_array_equal(jax.random.key_data(taken), jax.random.key_data(key))


@pytest.mark.parametrize("number", [7, np.int64(7), jnp.asarray(7)])
def test_whole_numbers_are_seeds(number: Any) -> None:
    """As in NumPyro's ``handlers.seed``."""
    np.testing.assert_array_equal(jax.random.key_data(checked_key(number)), jax.random.key_data(jax.random.key(7)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.ones((6, 2)), "an array of shape (6, 2) and dtype float64"),
        (jax.random.split(jax.random.key(0), 3), "an array of shape (3,) and dtype key<fry>"),
        (0.5, "a float"),
        (None, "a NoneType"),
        (True, "a bool"),
    ],
)
def test_what_is_no_key_is_refused(given: object, words: str) -> None:
    """With the name of the argument, and its place if data may have been passed in its place."""
    with pytest.raises(TypeError) as refused:
        checked_key(given, "adf.init")
    assert words in str(refused.value)
    assert str(refused.value).startswith("rng_key must be a JAX key")
    assert "adf.init(jax.random.key(0), ...)" in str(refused.value)
    with pytest.raises(TypeError) as refused:
        checked_key(given)
    assert "before the arguments" not in str(refused.value)


@pytest.mark.parametrize("kind", [adfpp.ADF, adfpp.EP])
def test_a_missing_key_is_named(kind: Any) -> None:
    """The rows stand in its place then; a seed gives the run of its key."""
    x, y, _ = models.rows()
    learner = kind(models.linear)
    for call in (learner.init, learner.run):
        with pytest.raises(TypeError, match="rng_key must be a JAX key.*Was it left out"):
            call(x, y=y)
    by_seed, by_key = (learner.run(key, x, y=y, progress_bar=False) for key in (3, jax.random.key(3)))
    np.testing.assert_array_equal(by_seed.state.belief.mean, by_key.state.belief.mean)
    np.testing.assert_array_equal(by_seed.posterior.sample(5)["w"], by_key.posterior.sample(jax.random.key(5))["w"])
