"""The arguments of a call: what is taken, in which ways, and what is refused."""

import logging
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import integrate, special, stats

import adfpp
from tests.model.common import (
    GROUP,
    KEY,
    SCALE,
    Array,
    X,
    Y,
    assert_exact,
    exact,
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


def binary(b: Array, y: Array | None = None) -> None:
    """Labels with a common log-odds."""
    w = sample("w", dist.Normal(0, 1))
    with rows(b):
        sample("y", dist.Bernoulli(logits=w + 0.0 * b), obs=y)


def test_integers_do_not_wrap_around(float32: None) -> None:
    """Without 64-bit numbers JAX would make 2^32 + 1 a 1, in every call and also where the shapes are known."""
    x, y, wrong = np.ones(4), np.array([0, 1, 1, 0]), np.array([0, 1, 2**32 + 1, 0])
    says(refusal(binary, x, y=wrong), "'y'", "4294967297", "int32", "jax_enable_x64")
    adf = adfpp.ADF(binary)
    state, _ = adf.update(adf.init(KEY, x, y=y), x, y=y)
    with pytest.raises(adfpp.ModelError, match="'y' has integers from 0 to 4294967297"):
        adf.update(state, x, y=wrong)
    with pytest.raises(adfpp.ModelError, match="'y' has integers"):
        adfpp.EP(binary).run(KEY, x, y=wrong, progress_bar=False)


def trials(n: Array, y: Array | None = None) -> None:
    """Counts with a common log-odds."""
    w = sample("w", dist.Normal(0, 1))
    with rows(n):
        sample("y", dist.Binomial(n, logits=w), obs=y)


@pytest.mark.parametrize(
    "dtypes", [(np.int8, np.int64), pytest.param((np.uint8, np.int32, np.int64), marks=pytest.mark.slow)]
)
def test_narrow_integers_do_not_overflow(dtypes: tuple[type, ...]) -> None:
    """127 + 1 is not a number of 8 bits, and integers of 32 bits are no reason to compute in float32."""
    n, y = np.array([127, 127]), np.array([127, 60])

    def probability(w: float) -> float:
        return float(stats.norm.pdf(w) * stats.binom.pmf(127, 127, special.expit(w)))

    first = np.log(integrate.quad(probability, -8.0, 12.0, epsabs=0.0, epsrel=1e-10, limit=200)[0])
    adf, log_z = adfpp.ADF(trials), []
    for dtype in dtypes:
        narrow = n.astype(dtype), y.astype(dtype)
        info = adf.update(adf.init(KEY, narrow[0], y=narrow[1]), narrow[0], y=narrow[1])[1]
        assert not np.asarray(info.status).any()
        np.testing.assert_allclose(info.log_z[0], first, rtol=1e-7)
        log_z.append(info.log_z)
    np.testing.assert_allclose(log_z, np.broadcast_to(log_z[-1], (len(dtypes), 2)), rtol=1e-12)


def optional_noise(x: Array, y: Array | None = None, noise: float | None = SCALE) -> None:
    """A model with a default for None to replace."""
    w = weights()
    scale = sample("noise", dist.LogNormal(0, 1)) if noise is None else noise
    with rows(x):
        sample("y", dist.Normal(x @ w, scale), obs=y)


def test_none_is_passed_on() -> None:
    """Also where the model has another default; None as the default is the same call as no argument."""
    assert set(learned_latents(optional_noise, X, y=Y, noise=None)) == {"w", "noise"}
    assert set(learned_latents(optional_noise, X, y=Y)) == {"w"}

    def required(x: Array, offset: Array | None, y: Array | None = None, other: float | None = None) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w + (0.0 if offset is None else offset), SCALE), obs=y)

    assert_exact(learned(required, X, None, y=Y))
    assert_exact(learned(required, X, offset=None, y=Y))
    assert program(required, X, None, Y, None).layout == program(required, X, None, y=Y).layout


def learned_latents(model: Any, *args: Any, **kwargs: Any) -> tuple[str, ...]:
    return tuple(latent.name for latent in program(model, *args, **kwargs).latents)


def test_names_none_where_the_model_fails_with_it() -> None:
    """Only then, and behind the model's own error."""

    def model(x: Array, offset: Array, y: Array | None = None) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w + offset, SCALE), obs=y)

    message = refusal(model, X, None, y=Y)
    says(message, "TypeError", "`x @ w + offset`", "None for offset")
    assert message.index("TypeError") < message.index("None for offset")
    with pytest.raises(adfpp.ModelError, match="rows names .*'noise'.*'x', 'y'"):
        adfpp.ADF(optional_noise, rows=("x", "noise")).init(KEY, X, y=Y, noise=None)


def test_refuses_masked_arrays() -> None:
    """The mask would be lost, also where an array of this shape has been taken before."""
    adf = adfpp.ADF(linear)
    masked = np.ma.masked_array(Y, [True, *[False] * 5])
    state = adf.init(KEY, X, y=Y)
    for call in (lambda: adf.init(KEY, X, y=masked), lambda: adf.update(state, X, y=masked)):
        with pytest.raises(TypeError) as refused:
            call()
        says(str(refused.value), "'y'", "masked array", "filled", "Leave out", "handlers.mask")
    series: Any = pd.Series(Y)
    adf.update(state, X, y=Y)
    with pytest.raises(TypeError, match="'y' is a Series"):
        adf.update(state, X, y=series)


@pytest.mark.parametrize("learner", [adfpp.ADF, adfpp.EP])
def test_only_options_of_the_methods_clash(learner: Any) -> None:
    """``rows`` is an option of the class alone, ``self`` a parameter of every method."""

    def named_rows(rows: Array, y: Array | None = None) -> None:
        w = weights()
        with numpyro.plate("data", rows.shape[0]):
            sample("y", dist.Normal(rows @ w, SCALE), obs=y)

    def named_self(x: Array, self: Array) -> None: ...

    result = learner(named_rows).run(KEY, rows=X, y=Y, progress_bar=False)
    np.testing.assert_allclose(result.state.belief.mean, exact()[0], atol=1e-7)
    with pytest.raises(ValueError, match="'self'.*rename"):
        learner(named_self)


def test_refuses_options_of_reweighted() -> None:
    """A model's argument of this name would be taken for the option."""

    def model(x: Array, num_samples: Array) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=num_samples)

    result, wrong = adfpp.ADF(model).run(KEY, X, Y, progress_bar=False), cast(Any, Y)
    with pytest.raises(ValueError, match="'num_samples'.*reweighted.*position"):
        result.posterior.reweighted(KEY, X, num_samples=wrong)
    assert result.posterior.reweighted(KEY, X, Y).ess > 1000
