"""Where learning starts: at the prior, or at the posterior of an earlier run."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adfpp
from tests.learn.posteriors import FAMILIES, Array, X, Y, first_half, regression, sample

KEY = jax.random.key(0)


def turned_round(x: Array, y: Array | None = None) -> None:
    """The same sites in another order, another prior and another likelihood."""
    s = sample("s", dist.Gamma(2.0, 2.0))
    w = sample("w", dist.MultivariateNormal(jnp.zeros(2), 4.0 * jnp.eye(2)))
    with numpyro.plate("rows", x.shape[0]):
        sample("y", dist.Laplace(x @ w, s), obs=y)


@pytest.mark.parametrize("family", FAMILIES)
def test_two_streams_are_one(family: str) -> None:
    """Going on from a posterior is going on."""
    adf, half = first_half(family)
    whole, info = adf.update(half, X[4:], y=Y[4:])
    again = adfpp.ADF(regression, family=family)
    start = again.init(KEY, X[4:], y=Y[4:], prior=adf.get_posterior(half))
    state, second = again.update(start, X[4:], y=Y[4:])
    for got, expected in ((start.belief, half.belief), (state.belief, whole.belief), (second, info)):
        if family == "spherical":  # a mean of equal variances
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), got, expected)
        else:
            jax.tree.map(np.testing.assert_array_equal, got, expected)
    assert start.rows == 0


def test_another_model_with_the_same_sites() -> None:
    """Sites are found by name; the correlations come along, or stay behind where the family has none."""
    adf, half = first_half("full")
    before = adf.get_posterior(half)
    mean, root = (np.asarray(a) for a in half.belief)
    covariance = (root @ root.T)[np.ix_([2, 0, 1], [2, 0, 1])]
    for family in FAMILIES:
        other = adfpp.ADF(turned_round, family=family)
        state = other.init(KEY, X, y=Y, prior=before)
        np.testing.assert_allclose(state.belief.mean, mean[[2, 0, 1]], rtol=1e-12)
        scale = np.asarray(state.belief.scale)
        if family == "full":
            np.testing.assert_allclose(scale @ scale.T, covariance, rtol=1e-10, atol=1e-14)
        else:
            expected = np.diag(covariance) if family == "diagonal" else np.diag(covariance).mean()
            np.testing.assert_allclose(scale**2, expected, rtol=1e-10)
        after = other.get_posterior(state)
        if family == "full":
            for name in ("w", "s"):
                np.testing.assert_allclose(after.mean()[name], before.mean()[name], rtol=1e-9)


def with_site(prior: Any, extra: bool = False) -> Callable[..., None]:
    """A model of one site, or two."""

    def model(x: Array, y: Array | None = None) -> None:
        w = sample("w", prior)
        if extra:
            w = w + sample("v", dist.Normal(0, 1))
        with numpyro.plate("rows", x.shape[0]):
            sample("y", dist.Normal(x[:, 0] * jnp.sum(w), 1.0), obs=y)

    return model


def handed_on(first: Callable[..., None], second: Callable[..., None]) -> tuple[adfpp.Posterior, adfpp.Posterior]:
    """The posterior of one model, before and after it became the prior of another."""
    adf, other = adfpp.ADF(first), adfpp.ADF(second)
    before = adf.get_posterior(adf.init(KEY, X, y=Y))
    return before, other.get_posterior(other.init(KEY, X, y=Y, prior=before))


def between(low: float, high: float) -> Any:
    """A logit-normal between two bounds."""
    steps = [dist.transforms.SigmoidTransform(), dist.transforms.AffineTransform(low, high - low, UNIT)]
    return dist.TransformedDistribution(dist.Normal(0, 1), steps)


UNIT = dist.constraints.unit_interval
_PAIR = dist.Normal(0, 1).expand([2])
_POSITIVE = dist.LogNormal(0, 1).expand([2])
_UNIT = dist.TransformedDistribution(_PAIR, dist.transforms.SigmoidTransform())

FITTING: dict[str, tuple[Any, Any]] = {
    "plate and event": (_PAIR, _PAIR.to_event(1)),
    "event and joint": (_PAIR.to_event(1), dist.MultivariateNormal(jnp.ones(2), jnp.eye(2))),
    "positive": (_POSITIVE.to_event(1), dist.HalfNormal(1.0).expand([2])),
    "same bounds": (between(-1.0, 5.0), between(-1.0, 5.0)),
}


@pytest.mark.parametrize("name", FITTING)
def test_sites_that_fit(name: str) -> None:
    """The same support in other words."""
    first, second = FITTING[name]
    before, after = handed_on(with_site(first), with_site(second))
    np.testing.assert_allclose(after.mean()["w"], before.mean()["w"], rtol=1e-9)
    np.testing.assert_allclose(after.sd()["w"], before.sd()["w"], rtol=1e-9)


MISFITTING: dict[str, tuple[Callable[..., None], Callable[..., None], str]] = {
    "missing": (with_site(dist.Normal(0, 1)), with_site(dist.Normal(0, 1), extra=True), "'v'"),
    "extra": (with_site(dist.Normal(0, 1), extra=True), with_site(dist.Normal(0, 1)), "'v'"),
    "shape": (with_site(_PAIR), with_site(dist.Normal(0, 1).expand([3])), "shape"),
    "support": (with_site(dist.Normal(0, 1)), with_site(dist.LogNormal(0, 1)), "support"),
    "support of elements": (
        with_site(_POSITIVE.to_event(1)),
        with_site(_UNIT.to_event(1)),
        "support",
    ),
    "bounds": (with_site(between(-1.0, 1.0)), with_site(between(-1.0, 10.0)), "support"),
}


@pytest.mark.parametrize("name", MISFITTING)
def test_sites_that_do_not_fit(name: str) -> None:
    """Refused, with the site's name."""
    first, second, word = MISFITTING[name]
    with pytest.raises(adfpp.ModelError, match="does not fit") as refused:
        handed_on(first, second)
    assert word in str(refused.value)
