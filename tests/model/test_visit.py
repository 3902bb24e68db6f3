"""One run of a model: what cannot be learned row by row, whatever its shapes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import special

from tests.model.common import (
    GROUP,
    HOLES,
    SCALE,
    SEEN,
    Array,
    X,
    Y,
    assert_exact,
    learned,
    refusal,
    rows,
    sample,
    says,
    weights,
)

COUNTS: dict[str, Callable[[Array], int]] = {
    "jnp.unique": lambda g: len(jnp.unique(g)),
    "set": lambda g: len(set(g.tolist())),
}


@pytest.mark.parametrize("how", COUNTS)
def test_refuses_a_count_that_is_not_taken_by_numpy(how: str) -> None:
    """The samplers of NumPyro refuse ``jnp.unique`` of an argument, too; the message names what works."""

    def model(group: Array, y: Array | None = None) -> None:
        z = sample("z", dist.Normal(0, 1).expand([COUNTS[how](group)]).to_event(1))
        with rows(group):
            sample("y", dist.Normal(z[group], SCALE), obs=y)

    says(refusal(model, GROUP, y=Y), "value", "data", "number of groups", "np.unique", "pass it as a Python number")


def test_names_the_statement_before_a_value_is_read() -> None:
    """So that the line is found."""

    def model(group: Array, y: Array | None = None) -> None:
        sample("mu", dist.Normal(0, 1))
        z = sample("z", dist.Normal(0, 1).expand([len(set(group.tolist()))]).to_event(1))
        with rows(group):
            sample("y", dist.Normal(z[group], SCALE), obs=y)

    says(refusal(model, GROUP, y=Y), "after latent 'mu'")


def test_obs_mask_leaves_out_what_was_not_observed() -> None:
    """NumPyro draws a latent for every row then, on which nothing depends."""

    def model(x: Array, seen: Array, y: Array | None = None) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y, obs_mask=seen)

    assert_exact(learned(model, X, SEEN, y=HOLES), X[SEEN], Y[SEEN])


def test_a_name_alone_is_no_obs_mask() -> None:
    """A latent of a user that is called like those of ``obs_mask`` is masked as any other."""

    def model(x: Array, seen: Array, y: Array | None = None) -> None:
        w = weights()
        with rows(x), handlers.mask(mask=seen):
            z = sample("z_unobserved", dist.Normal(0, 1))
            sample("y", dist.Normal(x @ w + z, SCALE), obs=y)

    says(refusal(model, X, SEEN, y=HOLES), "'z_unobserved'", "mask", "outside")


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


@pytest.mark.parametrize("mask", [False, np.array([True, False])])
def test_refuses_a_masked_prior(mask: Array) -> None:
    """``mask(False)`` makes a prior flat: improper, and not the Normal it seems to be."""

    def model(x: Array, y: Array | None = None) -> None:
        with handlers.mask(mask=mask):
            w = sample("w", dist.Normal(0, 1).expand([2]))
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    says(refusal(model, X, y=Y), "'w'", "mask", "flat", "outside of the mask")


@pytest.mark.parametrize("mask", [True, np.array([True, True])])
def test_takes_a_mask_that_is_true(mask: Array) -> None:
    """It changes nothing."""

    def model(x: Array, y: Array | None = None) -> None:
        with handlers.mask(mask=mask):
            w = sample("w", dist.Normal(0, 1).expand([2]))
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    assert_exact(learned(model, X, y=Y))


def test_a_latent_is_drawn_outside_of_the_mask() -> None:
    """The cure of the refusal: only the observations are masked. The local latent adds its variance to the noise."""

    def model(x: Array, seen: Array, outside: bool, y: Array | None = None) -> None:
        w = weights()
        with rows(x):
            z = sample("z", dist.Normal(0, 0.4).mask(True if outside else seen))
            with handlers.mask(mask=seen):
                sample("y", dist.Normal(x @ w + z, SCALE), obs=y)

    says(refusal(model, X, SEEN, False, y=HOLES), "'z'", "outside of the mask", "only the observations")
    mean, covariance, _ = learned(model, X, SEEN, True, y=HOLES)
    noise = SCALE**2 + 0.4**2
    precision = np.eye(2) + X[SEEN].T @ X[SEEN] / noise
    np.testing.assert_allclose(mean, np.linalg.solve(precision, X[SEEN].T @ Y[SEEN] / noise), atol=1e-7)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), atol=1e-7)


def test_takes_a_sample_shape() -> None:
    """It repeats a distribution, as ``expand`` does."""

    def model(x: Array, y: Array | None = None) -> None:
        w = sample("w", dist.Normal(0, 1), sample_shape=(2,))
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    assert_exact(learned(model, X, y=Y))


def test_refuses_values_that_are_compared_with_every_row() -> None:
    """A column of values beside a vector of means."""

    def model(x: Array, y: Array | None = None) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    says(refusal(model, X, y=Y[:, None]), "'y'", "(6, 1)", "(6, 6)", "Pass values of the shape (6,)")


def test_refuses_param() -> None:
    """It has no prior."""

    def model(x: Array, y: Array | None = None) -> None:
        b = numpyro.param("b", jnp.zeros(()))
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w + b, SCALE), obs=y)

    says(refusal(model, X, y=Y), "'b'", "numpyro.param", "no prior", "argument")


def test_refuses_a_start_with_another_support() -> None:
    """A Normal in the place of a positive latent would send a negative scale into the model."""

    def model(x: Array, y: Array | None = None) -> None:
        s = sample("s", dist.ImproperUniform(dist.constraints.positive, (), ()))
        with rows(x):
            sample("y", dist.Normal(x, s), obs=y)

    says(refusal(model, X[:, 0], y=Y, prior={"s": dist.Normal(0, 10)}), "'s'", "support")


FUNCTIONS: dict[str, tuple[Callable[[Array, Array], Array], str]] = {
    "dot": (lambda x, w: np.dot(x, w), "`np.dot(x, w)`"),
    "ufunc": (lambda x, w: x @ np.exp(w), "`np.exp(w)`"),
    "scipy": (lambda x, w: special.expit(x @ w), "`special.expit(x @ w)`"),
}


@pytest.mark.parametrize("which", FUNCTIONS)
def test_names_the_call_of_numpy(which: str) -> None:
    """NumPy needs numbers, and the values are traced."""
    function, code = FUNCTIONS[which]

    def model(x: Array, y: Array | None = None) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(function(x, w), SCALE), obs=y)

    message = refusal(model, X, y=Y)
    says(message, code, "test_visit.py", "NumPy", "jnp", "after latent 'w'")
    assert "reads a value" not in message


def test_names_the_condition() -> None:
    """A Python condition on a latent."""

    def model(x: Array, y: Array | None = None) -> None:
        w = weights()
        with rows(x):
            sample("y", dist.Normal(x @ w if w[0] > 0 else 0.0, SCALE), obs=y)

    says(refusal(model, X, y=Y), "`w[0] > 0`", "latents", "jnp.where")


def test_takes_a_scale_of_one() -> None:
    """It changes nothing."""

    def model(x: Array, y: Array | None = None) -> None:
        w = weights()
        with handlers.scale(scale=1.0), rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    assert_exact(learned(model, X, y=Y))


def test_refuses_a_scale_that_is_not_known() -> None:
    """It may be 1 in this call only."""

    def model(x: Array, scale: Array, y: Array | None = None) -> None:
        w = weights()
        with handlers.scale(scale=scale), rows(x):
            sample("y", dist.Normal(x @ w, SCALE), obs=y)

    says(refusal(model, X, np.asarray(1.0), y=Y), "'y'", "scale", "remove")


@pytest.mark.parametrize("hidden", [False, True])
def test_refuses_random_numbers(hidden: bool) -> None:
    """The log-likelihood of a row would be random."""

    def model(x: Array, y: Array | None = None) -> None:
        w = weights()
        if hidden:
            with handlers.block():
                shift = sample("shift", dist.Normal(0, 1))
        else:
            key: Any = numpyro.prng_key()
            shift = jax.random.normal(key, ())
        with rows(x):
            sample("y", dist.Normal(x @ w + shift, SCALE), obs=y)

    says(refusal(model, X, y=Y), "random key", "after latent 'w'", "numpyro.prng_key", "handlers.block", "latent")
