"""Reading a model: what is refused, with a message that helps, and what has to work."""

import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import handlers
from scipy import integrate, stats

import adfpp

Array = Any
sample: Callable[..., Any] = numpyro.sample

KEY = jax.random.key(0)
ROWS, SCALE = 6, 0.7
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(ROWS, 2))
Y = X @ np.array([1.0, -0.5]) + 0.3 * _RNG.normal(size=ROWS)
GROUP = np.array([0, 1, 2, 0, 1, 2])
SEEN = np.array([True, True, False, True, False, True])
HOLES = np.where(SEEN, Y, np.nan)


def weights(size: int = 2) -> Array:
    """The latent site of most models here."""
    return sample("w", dist.Normal(0, 1).expand([size]).to_event(1))


def rows(x: Array) -> Any:
    """The data plate, sized from an argument."""
    return numpyro.plate("rows", x.shape[0])


def linear(x: Array, y: Array | None = None) -> None:
    """The plainest model."""
    w = weights()
    with rows(x):
        sample("y", dist.Normal(x @ w, SCALE), obs=y)


def refusal(model: Callable[..., Any], *args: Any, error: Any = adfpp.ModelError, **kwargs: Any) -> str:
    """The message with which ``init`` refuses a call."""
    with pytest.raises(error) as refused:
        adfpp.ADF(model).init(KEY, *args, **kwargs)
    return str(refused.value)


def says(message: str, *words: str) -> None:
    """Asserts that a message has some words."""
    missing = [word for word in words if word.lower() not in message.lower()]
    assert not missing, f"{missing} not in {message!r}"


def learned(model: Callable[..., Any], *args: Any, adf: adfpp.ADF | None = None, **kwargs: Any) -> Any:
    """Mean, covariance and info after one update with the data of ``init``."""
    adf = adf if adf is not None else adfpp.ADF(model)
    state, info = adf.update(adf.init(KEY, *args, **kwargs), *args, **kwargs)
    return np.asarray(state.belief.mean), np.asarray(state.belief.scale @ state.belief.scale.T), info


def exact(x: Array = X, y: Array = Y) -> tuple[np.ndarray, np.ndarray, float]:
    """Posterior mean, covariance and log evidence of ``linear``, from the textbook."""
    covariance = np.linalg.inv(np.eye(x.shape[1]) + x.T @ x / SCALE**2)
    marginal = x @ x.T + SCALE**2 * np.eye(len(y))
    log_z = -0.5 * (y @ np.linalg.solve(marginal, y) + np.linalg.slogdet(2 * np.pi * marginal)[1])
    return covariance @ x.T @ y / SCALE**2, covariance, float(log_z)


def assert_exact(got: Any, x: Array = X, y: Array = Y, log_z_shift: float = 0.0, tol: float = 1e-7) -> None:
    """Asserts that what was learned is the posterior of ``linear``."""
    mean, covariance, log_z = exact(x, y)
    np.testing.assert_allclose(got[0], mean, atol=tol)
    np.testing.assert_allclose(got[1], covariance, atol=tol)
    np.testing.assert_allclose(np.sum(got[2].log_z), log_z + log_z_shift, atol=10 * tol)
    assert np.all(np.asarray(got[2].status) == adfpp.Status.OK)


# ------------------------------------------------------------------------------------- refused: rows


@pytest.mark.parametrize("size", [ROWS, ROWS - 2, 2 * ROWS])
def test_refuses_a_hard_coded_plate(size: int) -> None:
    """Whether or not its size happens to be that of the data."""

    def model(x: Array, y: Array | None = None) -> None:
        w = weights()
        with numpyro.plate("rows", size):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    says(refusal(model, X, y=Y), "y", "plate", "shapes", "x.shape[0]")


def test_refuses_a_hard_coded_plate_that_broadcasts() -> None:
    """One row's parameter stretched over the whole plate would be counted as often."""

    def model(y: Array | None = None) -> None:
        w = sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", ROWS):
            sample("y", dist.Normal(w, SCALE), obs=y)

    says(refusal(model, y=Y), "y", "plate", str(ROWS), "x.shape[0]")


def centred(x: Array, y: Array | None = None) -> None:
    """Standardises inside the model."""
    w = weights()
    x = x - x.mean(0)
    with rows(x):
        sample("y", dist.Normal(x @ w, SCALE), obs=y)


def test_refuses_rows_that_use_each_other() -> None:
    """``x - x.mean()``."""
    says(refusal(centred, X, y=Y), "'y'", "add up", "several rows", "x.mean()", "before the model")


def test_checks_rows_as_soon_as_there_are_two() -> None:
    """With one row at ``init`` nothing can be told; the next row tells."""
    adf = adfpp.ADF(centred)
    state = adf.init(KEY, X[:1], y=Y[:1])
    with pytest.raises(adfpp.ModelError, match="add up"):
        adf.update(state, X[1:2], y=Y[1:2])


def test_checks_rows_although_the_first_has_nan() -> None:
    """A first row that cannot be used does not put off the check for good."""
    broken = X.copy()
    broken[[0, 2]] = np.nan
    says(refusal(centred, broken, y=Y), "'y'", "add up")
    adf = adfpp.ADF(centred)
    state = adf.init(KEY, broken[:1], y=Y[:1])
    state, _ = adf.update(state, X[1:2], y=Y[1:2])
    with pytest.raises(adfpp.ModelError, match="add up"):
        adf.update(state, X[3:4], y=Y[3:4])


def test_nan_among_the_first_rows_is_no_obstacle() -> None:
    """They are refused one by one, and the others learned."""
    broken = X.copy()
    broken[[0, 2]] = np.nan
    whole = np.isfinite(broken[:, 0])
    mean, covariance, info = learned(linear, broken, y=Y)
    expected = exact(X[whole], Y[whole])
    np.testing.assert_allclose(mean, expected[0], atol=1e-10)
    np.testing.assert_allclose(covariance, expected[1], atol=1e-10)
    np.testing.assert_array_equal(np.asarray(info.status) == adfpp.Status.NOT_FINITE, ~whole)


def test_check_ends_although_the_first_row_is_impossible() -> None:
    """A first row of probability zero does not have the model checked again and again."""
    runs = 0

    def model(x: Array, y: Array | None = None) -> None:
        nonlocal runs
        runs += 1
        w = weights()
        with rows(x):
            sample("y", dist.Gamma(2.0, jnp.exp(x @ w)), obs=y)

    adf = adfpp.ADF(model)
    y = np.abs(Y)
    y[0] = -1.0
    state = adf.init(KEY, X[:1], y=y[:1])
    for t in range(3):
        state, info = adf.update(state, X[t : t + 1], y=y[t : t + 1])
        assert info.status[0] == (adfpp.Status.OUT_OF_SUPPORT if t == 0 else adfpp.Status.OK)
    before = runs
    for t in range(3, 6):
        state, _ = adf.update(state, X[t : t + 1], y=y[t : t + 1])
    assert runs == before


COUNTS: dict[str, Callable[[Array], int]] = {
    "int(max)": lambda g: int(g.max()) + 1,
    "np.unique": lambda g: len(np.unique(g)),
    "jnp.unique": lambda g: len(jnp.unique(g)),
    "set": lambda g: len(set(g.tolist())),
}


@pytest.mark.parametrize("how", COUNTS)
def test_refuses_a_count_taken_from_the_data(how: str) -> None:
    """One row has one group only."""

    def model(group: Array, y: Array | None = None) -> None:
        z = sample("z", dist.Normal(0, 1).expand([COUNTS[how](group)]).to_event(1))
        with rows(group):
            sample("y", dist.Normal(z[group], SCALE), obs=y)

    says(refusal(model, GROUP, y=Y), "value", "data", "number of groups", "pass it as a Python number")


def test_names_the_site_before_a_value_is_read() -> None:
    """So that the line is found."""

    def model(group: Array, y: Array | None = None) -> None:
        sample("mu", dist.Normal(0, 1))
        z = sample("z", dist.Normal(0, 1).expand([int(group.max()) + 1]).to_event(1))
        with rows(group):
            sample("y", dist.Normal(z[group], SCALE), obs=y)

    says(refusal(model, GROUP, y=Y), "after latent 'mu'")


def test_refuses_obs_mask() -> None:
    """NumPyro makes a latent site a row of it; ``handlers.mask`` is the way."""

    def model(x: Array, seen: Array, y: Array | None = None) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y, obs_mask=seen)

    says(refusal(model, X, SEEN, y=Y), "y_unobserved", "obs_mask", "handlers.mask")


def test_refuses_a_factor_that_is_not_per_row() -> None:
    """A penalty on w would be counted once a row."""

    def model(x: Array, y: Array | None = None) -> None:
        w = weights()
        numpyro.factor("penalty", -0.5 * jnp.sum(w**2))
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    says(refusal(model, X, y=Y), "'penalty'", "factor", "once a row", "prior")


def test_refuses_scale() -> None:
    """It would count rows more than once."""

    def model(x: Array, y: Array | None = None) -> None:
        w = weights()
        with handlers.scale(scale=2.0), rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    says(refusal(model, X, y=Y), "'y'", "scale", "remove")


def test_refuses_a_subsampling_plate() -> None:
    """Rows come one by one anyway."""

    def model(x: Array, y: Array) -> None:
        w = weights()
        with numpyro.plate("rows", x.shape[0], subsample_size=3) as i:
            sample("y", dist.Normal(x[i] @ w, SCALE), obs=y[i])

    says(refusal(model, X, Y), "'rows'", "subsample", "drop")


def test_refuses_correlated_rows() -> None:
    """A random walk over the rows is one event, not as many rows."""

    def model(y: Array) -> None:
        scale = sample("scale", dist.HalfNormal(1))
        sample("y", dist.GaussianRandomWalk(scale, y.shape[0]), obs=y)

    says(refusal(model, Y), "'y'", "rows")


# ------------------------------------------------------------------------------------- refused: sites


def test_refuses_a_discrete_latent_site() -> None:
    """One without end cannot be listed."""

    def model(x: Array, y: Array | None = None) -> None:
        w, k = weights(), sample("k", dist.Poisson(0.5))
        with rows(x):
            sample("y", dist.Normal(x @ w + k, SCALE), obs=y)

    says(refusal(model, X, y=Y), "'k'", "discrete", "cannot be listed", "Categorical")


def improper(x: Array, y: Array | None = None) -> None:
    """Flat weights."""
    w = sample("w", dist.ImproperUniform(dist.constraints.real, (), (2,)))
    with rows(x):
        sample("y", dist.Normal(x @ w, SCALE), obs=y)


def test_refuses_an_improper_prior() -> None:
    """No online update can start from it."""
    says(refusal(improper, X, y=Y), "'w'", "improper", "prior={'w': dist.Normal(0, 10)}")
    with pytest.raises(adfpp.ModelError, match="improper"):
        adfpp.ADF(improper).explain(X, y=Y)


def test_takes_an_improper_prior_with_a_proper_start() -> None:
    """``prior={site: distribution}`` is put in its place."""
    adf = adfpp.ADF(improper)
    state = adf.init(KEY, X, y=Y, prior={"w": dist.Normal(0, 1)})
    state, _ = adf.update(state, X, y=Y)
    np.testing.assert_allclose(state.belief.mean, exact()[0], atol=1e-10)


def test_refuses_a_start_with_another_support() -> None:
    """A Normal in the place of a positive site would send a negative scale into the model."""

    def model(x: Array, y: Array | None = None) -> None:
        s = sample("s", dist.ImproperUniform(dist.constraints.positive, (), ()))
        with rows(x):
            sample("y", dist.Normal(x, s), obs=y)

    says(refusal(model, X[:, 0], y=Y, prior={"s": dist.Normal(0, 10)}), "'s'", "support")


def test_refuses_a_prior_for_no_site() -> None:
    """A misspelt site must not leave the model's prior in its place."""
    says(refusal(linear, X, y=Y, prior={"ww": dist.Normal(0, 10)}), "'ww'", "'w'")
    message = refusal(linear, X, y=Y, prior={"w": 3.0}, error=(TypeError, ValueError))
    says(message, "'w'", "distribution")


def test_refuses_a_masked_prior() -> None:
    """``mask(False)`` makes a prior flat: improper, and not the Normal it seems to be."""

    def model(x: Array, y: Array | None = None) -> None:
        with handlers.mask(mask=False):
            w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    says(refusal(model, X, y=Y), "'w'", "mask")


def test_refuses_a_support_that_depends_on_another_site() -> None:
    """Its unconstrained coordinate would change meaning."""

    def model(x: Array, y: Array | None = None) -> None:
        a = sample("a", dist.HalfNormal(1))
        u = sample("u", dist.Uniform(0, a))
        with rows(x):
            sample("y", dist.Normal(x * u, SCALE), obs=y)

    says(refusal(model, X[:, 0], y=Y), "'u'", "'a'", "support", "standardised")


def test_refuses_param() -> None:
    """It has no prior."""

    def model(x: Array, y: Array | None = None) -> None:
        b = numpyro.param("b", jnp.zeros(()))
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w + b, SCALE), obs=y)

    says(refusal(model, X, y=Y), "'b'", "numpyro.param", "no prior", "argument")


def test_refuses_a_model_without_observed_site() -> None:
    """``y`` left at None."""
    says(refusal(linear, X), "no observation", "obs=", "None")


def test_refuses_a_model_without_latent_site() -> None:
    """Nothing to learn."""

    def model(x: Array, y: Array | None = None) -> None:
        with rows(x):
            sample("y", dist.Normal(x, SCALE), obs=y)

    says(refusal(model, X[:, 0], y=Y), "no latent")


def test_refuses_a_prior_that_looks_at_the_data() -> None:
    """Its shape does not change, its values do."""

    def model(x: Array, y: Array | None = None) -> None:
        w = sample("w", dist.Normal(x.mean(0), 1).to_event(1))
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    says(refusal(model, X, y=Y), "prior", "rows", "arguments of their own")


# ------------------------------------------------------------------------------------- refused: arguments


def test_refuses_empty_arrays() -> None:
    """At ``init`` and at ``update``."""
    says(refusal(linear, X[:0], y=Y[:0]), "'x'", "no rows", "at least one")
    adf = adfpp.ADF(linear)
    state = adf.init(KEY, X, y=Y)
    with pytest.raises(adfpp.ModelError, match="'x'"):
        adf.update(state, X[:0], y=Y[:0])


@pytest.mark.parametrize("length", [1, 4])
def test_refuses_rows_of_different_lengths(length: int) -> None:
    """A single y is not stretched over the rows of x."""
    says(refusal(linear, X, y=Y[:length]), "x", "y", str(ROWS), str(length), "length")
    adf = adfpp.ADF(linear)
    state = adf.init(KEY, X, y=Y)
    with pytest.raises(adfpp.ModelError) as refused:
        adf.update(state, X, y=Y[:length])
    says(str(refused.value), "x", "y", str(ROWS), str(length), "length")


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
    with pytest.raises(TypeError, match="Posterior"):
        adfpp.ADF(linear).init(KEY, X, y=Y, prior=3.0)


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


# ------------------------------------------------------------------------------------- works: masks


def mask_handler(x: Array, seen: Array, y: Array) -> None:
    """Masked by the handler."""
    w = weights()
    with rows(x), handlers.mask(mask=seen):
        sample("y", dist.Normal(x @ w, SCALE), obs=y)


def mask_distribution(x: Array, seen: Array, y: Array) -> None:
    """Masked by the distribution, under to_event over the rows."""
    w = weights()
    sample("y", dist.Normal(x @ w, SCALE).mask(seen).to_event(1), obs=y)


def mask_inferred(x: Array, seen: Array, y: Array) -> None:
    """Masked where y is NaN."""
    w = weights()
    with rows(x):
        sample("y", dist.Normal(x @ w, SCALE).mask(~jnp.isnan(y)), obs=y)


@pytest.mark.parametrize("model", [mask_handler, mask_distribution, mask_inferred])
def test_masked_rows_are_left_out(model: Callable[..., None]) -> None:
    """Masked rows, NaN in them or not, leave no trace."""
    got = learned(model, X, SEEN, HOLES)
    assert_exact(got, X[SEEN], Y[SEEN])
    np.testing.assert_array_equal(np.asarray(got[2].log_z)[~SEEN], 0.0)


def test_masked_rows_are_left_out_by_quadrature() -> None:
    """The same where the integral is numerical."""

    def model(x: Array, seen: Array, y: Array) -> None:
        w = weights()
        with rows(x), handlers.mask(mask=seen):
            sample("y", dist.Logistic(x @ w, SCALE), obs=y)

    adf = adfpp.ADF(model)
    masked = learned(model, X, SEEN, HOLES, adf=adf)
    without = learned(model, X[SEEN], SEEN[SEEN], Y[SEEN], adf=adf)
    np.testing.assert_allclose(masked[0], without[0], atol=1e-14)
    np.testing.assert_allclose(masked[1], without[1], atol=1e-14)


def test_masked_elements_are_left_out() -> None:
    """A mask over the elements of a vector-valued row."""
    y = np.stack([HOLES, Y], 1)

    def model(x: Array, y: Array) -> None:
        w = weights()
        with numpyro.plate("rows", x.shape[0], dim=-2), numpyro.plate("columns", 2):
            sample("y", dist.Normal((x @ w)[:, None], SCALE).mask(~jnp.isnan(y)), obs=y)

    assert_exact(learned(model, X, y), np.concatenate([X[SEEN], X]), np.concatenate([Y[SEEN], Y]))


# ------------------------------------------------------------------------------------- works: arguments


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


@pytest.mark.parametrize("make", [np.asarray, jnp.asarray])
def test_nested_arguments(make: Callable[[Any], Any]) -> None:
    """Leaves of a pytree carry rows too, as NumPy or JAX arrays."""

    def model(data: dict[str, Any]) -> None:
        w = weights()
        with rows(data["x"]):
            sample("y", dist.Normal(data["x"] @ w, SCALE), obs=data["target"][0])

    data = {"x": make(X), "target": (make(Y), {"power": 1})}
    assert_exact(learned(model, data))
    explained = adfpp.ADF(model).explain(data)
    assert explained.rows == ("data",)


def test_keyword_rest() -> None:
    """Arguments collected by ``**data``."""

    def model(x: Array, **data: Array) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=data["y"])

    assert_exact(learned(model, X, y=Y))


def test_rows_are_found_and_can_be_said() -> None:
    """An array that happens to be as long as the data is told apart by ``rows``."""

    def model(x: Array, shifts: Array, y: Array | None = None) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w + shifts.sum(), SCALE), obs=y)

    shifts = np.linspace(0.1, 0.6, ROWS)
    says(refusal(model, X, shifts, y=Y), "'y'", "rows=(...)")
    adf = adfpp.ADF(model, rows=("x", "y"))
    assert_exact(learned(model, X, shifts, y=Y, adf=adf), y=Y - shifts.sum())
    explained = adf.explain(X, shifts, y=Y)
    assert explained.rows == ("x", "y")
    assert explained.constants == ("shifts",)


def test_a_shared_array_may_change_its_length() -> None:
    """The model is read anew; nothing is taken from the old length."""

    def model(x: Array, shifts: Array, y: Array | None = None) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w + shifts.mean(), SCALE), obs=y)

    adf = adfpp.ADF(model)
    state = adf.init(KEY, X, np.ones(3), y=Y)
    state, _ = adf.update(state, X, np.array([0.0, 0.0, 0.0, 2.5, 0.0]), y=Y)
    np.testing.assert_allclose(state.belief.mean, exact(y=Y - 0.5)[0], atol=1e-10)


def test_scalar_rows() -> None:
    """x of shape (n,)."""

    def model(x: Array, y: Array | None = None) -> None:
        w = sample("w", dist.Normal(0, 1))
        with rows(x):
            sample("y", dist.Normal(x * w, SCALE), obs=y)

    assert_exact(learned(model, X[:, 0], y=Y), X[:, :1])


def test_replaced_priors_last_for_one_init() -> None:
    """The next ``init`` without ``prior`` starts from the model's own."""
    adf = adfpp.ADF(linear)
    start = adf.init(KEY, X, y=Y)
    other = adf.init(KEY, X, y=Y, prior={"w": dist.Normal(np.array([1.0, 2.0]), 3.0)})
    np.testing.assert_allclose(other.belief.mean, [1.0, 2.0])
    np.testing.assert_allclose(np.diag(other.belief.scale), 3.0)
    again = adf.init(KEY, X, y=Y)
    jax.tree.map(np.testing.assert_array_equal, start.belief, again.belief)


# ------------------------------------------------------------------------------------- works: likelihoods


def factor_per_row(x: Array, y: Array) -> None:
    """The likelihood as a vector of factors."""
    numpyro.factor("y", dist.Normal(x @ weights(), SCALE).log_prob(y))


def factor_in_plate(x: Array, y: Array) -> None:
    """The likelihood as a factor in the data plate."""
    w = weights()
    with rows(x):
        numpyro.factor("y", dist.Normal(x @ w, SCALE).log_prob(y))


def factor_summed(x: Array, y: Array) -> None:
    """The likelihood as one number: its rows add up, so it is one."""
    numpyro.factor("y", dist.Normal(x @ weights(), SCALE).log_prob(y).sum())


def no_plate(x: Array, y: Array) -> None:
    """An observed site without a plate."""
    sample("y", dist.Normal(x @ weights(), SCALE), obs=y)


def event_over_rows(x: Array, y: Array) -> None:
    """The rows as an event of independent elements."""
    sample("y", dist.Normal(x @ weights(), SCALE).to_event(1), obs=y)


class Bell(dist.Distribution):
    """A user's own distribution; it cannot even sample."""

    arg_constraints = {"loc": dist.constraints.real}
    support = dist.constraints.real  # pyright: ignore[reportAssignmentType]

    def __init__(self, loc: Array, *, validate_args: bool | None = None) -> None:
        self.loc = loc
        super().__init__(jnp.shape(loc), (), validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        return -0.5 * ((value - self.loc) / SCALE) ** 2 - jnp.log(SCALE * jnp.sqrt(2 * jnp.pi))


class Subclass(dist.Normal):
    """A subclass may mean something else, so it does not inherit a closed form."""

    def log_prob(self, value: Array) -> Array:
        return 2.0 * super().log_prob(value)


def own_distribution(x: Array, y: Array) -> None:
    """A user's own likelihood."""
    w = weights()
    with rows(x):
        sample("y", Bell(x @ w), obs=y)


def latent_in_the_value(x: Array, y: Array) -> None:
    """The observed value is a residual."""
    w = weights()
    with rows(x):
        sample("y", dist.Normal(0.0, SCALE), obs=y - x @ w)


def latent_in_value_and_field(x: Array, y: Array) -> None:
    """Half of the predictor stands on each side."""
    w = weights()
    with rows(x):
        sample("y", dist.Normal(x[:, 0] * w[0], SCALE), obs=y - x[:, 1] * w[1])


@pytest.mark.parametrize(
    "model",
    [
        factor_per_row,
        factor_in_plate,
        factor_summed,
        no_plate,
        event_over_rows,
        own_distribution,
        latent_in_the_value,
        latent_in_value_and_field,
    ],
)
def test_ways_to_write_a_likelihood(model: Callable[..., None]) -> None:
    """All give what the plain model gives."""
    assert_exact(learned(model, X, Y))


def test_a_subclass_keeps_its_own_density() -> None:
    """Its log density counts, here every row twice."""

    def model(x: Array, y: Array) -> None:
        w = weights()
        with rows(x):
            sample("y", Subclass(x @ w, SCALE), obs=y)

    got = learned(model, X, Y)
    mean, covariance, _ = exact(np.concatenate([X, X]), np.concatenate([Y, Y]))
    np.testing.assert_allclose(got[0], mean, atol=1e-7)
    np.testing.assert_allclose(got[1], covariance, atol=1e-7)


def test_two_observed_sites() -> None:
    """Each row brings both."""

    def model(x: Array, y: Array, v: Array) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)
            sample("v", dist.Normal(2 * x @ w, SCALE), obs=v)

    v = 2 * Y + 0.1
    assert_exact(learned(model, X, Y, v), np.concatenate([X, 2 * X]), np.concatenate([Y, v]))


def test_two_observed_sites_of_different_shapes() -> None:
    """A vector and a number a row, without plates."""

    def model(x: Array, y: Array, v: Array) -> None:
        w = weights()
        sample("v", dist.Normal(x * w, SCALE).to_event(2), obs=v)
        sample("y", dist.Normal(x @ w, SCALE).to_event(1), obs=y)

    v = X * np.array([0.9, -0.4])
    stacked = np.concatenate([*[np.diag(x) for x in X], X])
    assert_exact(learned(model, X, Y, v), stacked, np.concatenate([v.reshape(-1), Y]))


def test_a_transformed_likelihood_keeps_its_jacobian() -> None:
    """LogNormal data give the posterior of the logs and the evidence of the data."""

    def model(x: Array, y: Array) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.LogNormal(x @ w, SCALE), obs=y)

    assert_exact(learned(model, X, np.exp(Y)), log_z_shift=-Y.sum())


def test_a_transformed_latent_keeps_its_jacobian() -> None:
    """The evidence of one row under a LogNormal rate, against scipy's integral."""

    def model(y: Array) -> None:
        rate = sample("rate", dist.LogNormal(0.3, 0.8))
        with rows(y):
            sample("y", dist.Exponential(rate), obs=y)

    y = 1.7
    prior: Any = stats.lognorm(0.8, scale=np.exp(0.3))
    _, _, info = learned(model, np.array([y]))
    exact_z, _ = integrate.quad(lambda r: prior.pdf(r) * r * np.exp(-r * y), 0, np.inf, epsabs=1e-12)
    np.testing.assert_allclose(info.log_z[0], np.log(exact_z), atol=1e-7)


def test_a_prior_counts_once() -> None:
    """Folding in 5 rows at once or one by one changes the posterior by nothing."""
    adf = adfpp.ADF(linear)
    state = adf.init(KEY, X, y=Y)
    together, _ = adf.update(state, X, y=Y)
    for t in range(ROWS):
        state, _ = adf.update(state, X[t : t + 1], y=Y[t : t + 1])
    np.testing.assert_allclose(state.belief.mean, together.belief.mean, atol=1e-12)
    np.testing.assert_allclose(state.belief.mean, exact()[0], atol=1e-10)


# ------------------------------------------------------------------------------------- works: supports


def bounded(low: Any, high: Any) -> Callable[..., None]:
    """A slope between two bounds."""

    def model(x: Array, y: Array | None = None) -> None:
        u = sample("u", dist.Uniform(low, high).expand([2]).to_event(1))
        with rows(x):
            sample("y", dist.Normal(x @ u, SCALE), obs=y)

    return model


@pytest.mark.slow
def test_bounds_may_be_arrays() -> None:
    """Arrays in a support, made outside the model or in it, mean what numbers mean."""
    plain = learned(bounded(-1.0, 2.0), X, y=Y)[0]
    outside = learned(bounded(jnp.full(2, -1.0), jnp.full(2, 2.0)), X, y=Y)[0]

    def inside(x: Array, y: Array | None = None) -> None:
        u = sample("u", dist.Uniform(-jnp.ones(2), 2.0 * jnp.ones(2)).to_event(1))
        with rows(x):
            sample("y", dist.Normal(x @ u, SCALE), obs=y)

    np.testing.assert_allclose(outside, plain, atol=1e-10)
    np.testing.assert_allclose(learned(inside, X, y=Y)[0], plain, atol=1e-10)


@pytest.mark.slow
def test_bounds_may_be_arguments() -> None:
    """A support given by an argument that all rows share; the posterior lies in it."""

    def model(x: Array, high: Array, y: Array | None = None) -> None:
        u = sample("u", dist.Uniform(-1.0, high).expand([2]).to_event(1))
        with rows(x):
            sample("y", dist.Normal(x @ u, SCALE), obs=y)

    adf = adfpp.ADF(model)
    high = np.asarray(2.0)
    state, _ = adf.update(adf.init(KEY, X, high, y=Y), X, high, y=Y)
    np.testing.assert_allclose(state.belief.mean, learned(bounded(-1.0, 2.0), X, y=Y)[0], atol=1e-10)
    draws = adf.get_posterior(state).sample(KEY, (100,))["u"]
    assert np.all((draws > -1.0) & (draws < 2.0))


def test_rows_of_probability_zero_do_not_break_the_check() -> None:
    """A noise-free likelihood makes many rows impossible at a random draw; they are kept, batch by batch."""

    def step(x: Any, y: Any = None) -> None:
        w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", adfpp.distributions.Probit(x @ w, noise=0.0), obs=y)

    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    y = (x @ [1.0, -1.0] > 0).astype(int)
    adf = adfpp.ADF(step)
    state = adf.init(jax.random.key(0), x, y=y)
    for i in range(0, 40, 5):
        state, info = adf.update(state, x[i : i + 5], y=y[i : i + 5])
        assert (np.asarray(info.status) == adfpp.Status.OK).all()
