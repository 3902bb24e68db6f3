"""The arguments of a call: what is taken, in which ways, and what is refused."""

import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import adfpp
from tests.model.common import (
    GROUP,
    KEY,
    SCALE,
    Array,
    X,
    Y,
    assert_exact,
    learned,
    linear,
    program,
    refusal,
    rows,
    sample,
    says,
    weights,
)


def test_refuses_what_is_not_an_array() -> None:
    """A DataFrame, a Series, strings and lists, each with what to do about it."""
    either = (TypeError, ValueError)
    says(refusal(linear, pd.DataFrame(X), y=Y, error=either), "'x'", "DataFrame", "to_numpy()")
    says(refusal(linear, X, y=pd.Series(Y), error=either), "'y'", "Series", "to_numpy()")
    says(refusal(linear, X, y=np.array(list("abcdef")), error=either), "'y'", "dtype", "Encode")
    says(refusal(linear, X, y=list(Y), error=either), "'y'", "list", "array")
    says(refusal(linear, X.tolist(), y=Y, error=either), "'x'", "list", "array")


def test_refuses_another_number_of_columns() -> None:
    """Later in the stream."""
    adf = adfpp.ADF(linear)
    state = adf.init(KEY, X, y=Y)
    for x in (np.ones((3, 5)), np.ones(3)):
        with pytest.raises(adfpp.ModelError) as refused:
            adf.update(state, x, y=Y[:3])
        says(str(refused.value), "'x'", "shape", str(x.shape[1:]), "(2,)")


def test_refuses_options_as_model_arguments() -> None:
    """They could not be told apart."""

    def takes_state(x: Array, state: Array) -> None: ...

    def takes_key(rng_key: Array, x: Array) -> None: ...

    for model, name in ((takes_state, "'state'"), (takes_key, "'rng_key'")):
        with pytest.raises(ValueError) as refused:
            adfpp.ADF(model)
        says(str(refused.value), name, "rename")


def test_refuses_misspelt_options() -> None:
    """With the spellings that exist."""
    with pytest.raises(ValueError, match="'ful'.*'full'"):
        adfpp.ADF(linear, family="ful")
    with pytest.raises(ValueError, match="'quad'.*'quadrature'"):
        adfpp.ADF(linear, moments="quad")
    with pytest.raises(adfpp.ModelError, match="'z'.*'x', 'y'"):
        adfpp.ADF(linear, rows=("x", "z")).init(KEY, X, y=Y)
    with pytest.raises(TypeError, match="callable"):
        adfpp.ADF(3)  # pyright: ignore[reportArgumentType]
    wrong: Any = 3.0
    with pytest.raises(TypeError, match="Posterior"):
        adfpp.ADF(linear).init(KEY, X, y=Y, prior=wrong)


def test_refuses_a_posterior_before_init() -> None:
    """There is no model yet to see it through."""
    state = adfpp.ADF(linear).init(KEY, X, y=Y)
    with pytest.raises(adfpp.ModelError, match="init"):
        adfpp.ADF(linear).get_posterior(state)


def test_refuses_positional_rest() -> None:
    """Rows are told apart by name."""

    def model(*data: Array) -> None:
        w = weights()
        with rows(data[0]):
            sample("y", dist.Normal(data[0] @ w, SCALE), obs=data[1])

    says(refusal(model, X, Y), "*data", "named")


def test_static_and_closed_over_arguments() -> None:
    """Python numbers, strings and Booleans may steer the model."""
    offset = jnp.asarray(0.0)

    def model(x: Array, y: Array, power: int = 2, kind: str = "other", flag: bool = False) -> None:
        w = weights()
        location = (x**power) @ w + offset if kind == "linear" and flag else x[:, 0]
        with rows(x):
            sample("y", dist.Normal(location, SCALE), obs=y)

    assert_exact(learned(model, X, Y, 1, "linear", flag=True))


def test_calls_may_mix_positions_and_keywords() -> None:
    """The same call, written otherwise, gives the same and compiles nothing."""
    runs = 0

    def model(x: Array, group: Array, n_groups: int, y: Array | None = None) -> None:
        nonlocal runs
        runs += 1
        w, z = weights(), sample("z", dist.Normal(0, 1).expand([n_groups]).to_event(1))
        with rows(x):
            sample("y", dist.Normal(x @ w + z[group], SCALE), obs=y)

    compiled: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "Finished XLA compilation" in record.getMessage():
                compiled.append(record.getMessage())

    adf = adfpp.ADF(model)
    start = adf.init(KEY, X, GROUP, 3, y=Y)
    first, _ = adf.update(start, X, GROUP, 3, y=Y)
    before = runs
    logger, listener = logging.getLogger("jax"), Listener()
    logger.addHandler(listener)
    try:
        with jax.log_compiles():
            others = [
                adf.update(start, X, y=Y, n_groups=3, group=GROUP)[0],
                adf.update(start, y=Y, x=X, group=GROUP, n_groups=3)[0],
                adf.update(start, X, GROUP, 3, Y)[0],
            ]
            repeated = list(compiled)
            jax.block_until_ready(jax.jit(lambda a: 2 * a + 1)(jnp.ones(17)))
    finally:
        logger.removeHandler(listener)
    assert not repeated
    assert compiled, "the listener hears nothing"
    assert runs == before
    for other in others:
        jax.tree.map(np.testing.assert_array_equal, first.belief, other.belief)


def nested(data: dict[str, Any]) -> None:
    """Rows in a dict and in a tuple inside it, beside an option."""
    w = weights()
    with rows(data["x"]):
        sample("y", dist.Normal(data["x"] @ w, SCALE), obs=data["target"][0])


def test_nested_arguments() -> None:
    """Leaves of a pytree carry rows too, as NumPy or JAX arrays."""
    data = {"x": X, "target": (Y, {"power": 1})}
    assert_exact(learned(nested, data))
    assert adfpp.ADF(nested).explain(data).rows == ("data",)
    arrays = {"x": jnp.asarray(X), "target": (jnp.asarray(Y), {"power": 1})}
    assert program(nested, arrays).layout == program(nested, data).layout


def test_keyword_rest() -> None:
    """Arguments collected by ``**data``."""

    def model(x: Array, **data: Array) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=data["y"])

    assert_exact(learned(model, X, y=Y))
