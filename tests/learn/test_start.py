"""Where learning starts: at the prior, or at the posterior of an earlier run."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import special

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


def vague_variance(group: Array, y: Array | None = None) -> None:
    """Groups whose variance has a prior that overflows: half of its draws are infinite in float64."""
    mu = sample("mu", dist.Normal(0.0, 10.0))
    sigma2 = sample("sigma2", dist.InverseGamma(1e-3, 1e-3))
    with numpyro.plate("groups", 8):
        theta = sample("theta", dist.Normal(mu, jnp.sqrt(sigma2)))
    with numpyro.plate("rows", group.shape[0]):
        sample("y", dist.Normal(theta[group], 1.0), obs=y)


def _groups() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    group, theta = np.arange(64) % 8, rng.normal(1.0, 2.0, 8)
    return group, theta[group] + rng.normal(size=64)


def _exact_means(group: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Posterior means of mu and theta by a sum over a grid of mu and log sigma2; theta is integrated by hand."""
    means, noise = np.array([y[group == i].mean() for i in range(8)]), 1.0 / 8
    u, mu = np.linspace(-12, 12, 1201)[:, None], np.linspace(-15, 15, 601)[None]
    log_weight = -0.5 * mu**2 / 100 - 1e-3 * u - 1e-3 * np.exp(-u)
    for m in means:
        log_weight = log_weight - 0.5 * np.log(np.exp(u) + noise) - 0.5 * (mu - m) ** 2 / (np.exp(u) + noise)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    kept = np.exp(u) / (np.exp(u) + noise)
    return np.array([(weight * mu).sum(), *[(weight * (kept * m + (1 - kept) * mu)).sum() for m in means]])


@pytest.mark.parametrize("family", ["full", "diagonal"])
@pytest.mark.parametrize(
    "x64", [pytest.param(True, marks=pytest.mark.slow, id="float64"), pytest.param(False, id="float32")]
)
def test_a_prior_that_overflows_gives_a_proper_start(family: str, x64: bool) -> None:
    """The log of the variance has the moments of a log-gamma number; everything else is finite."""
    group, y = _groups()
    with jax.enable_x64(x64):
        adf = adfpp.ADF(vague_variance, family=family)
        state = adf.init(KEY, group, y=y)
        mean, scale = np.asarray(state.belief.mean), np.asarray(state.belief.scale)
    assert np.isfinite(mean).all() and np.isfinite(scale).all()
    sd = np.sqrt((scale**2).sum(1)) if family == "full" else scale
    assert (sd > 0).all()
    np.testing.assert_allclose(mean[1], np.log(1e-3) - special.digamma(1e-3), rtol=1e-4)
    np.testing.assert_allclose(sd[1], np.sqrt(special.polygamma(1, 1e-3)), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "x64", [pytest.param(True, marks=pytest.mark.slow, id="float64"), pytest.param(False, id="float32")]
)
def test_ep_learns_below_a_prior_that_overflows(x64: bool) -> None:
    """No row and no factor is refused, and EP's means are those of the exact posterior to 0.01."""
    group, y = _groups()
    with jax.enable_x64(x64):
        result = adfpp.EP(vague_variance).run(KEY, group, y=y, progress_bar=False)
        mean = np.asarray(result.state.belief.mean)
    np.testing.assert_allclose(mean[[0, *range(2, 10)]], _exact_means(group, y), atol=0.01)


def too_narrow(x: Array, y: Array | None = None) -> None:
    """A prior whose sd is 0 in float32."""
    narrow = sample("narrow", dist.Normal(0.0, 1e-60))
    with numpyro.plate("rows", x.shape[0]):
        sample("y", dist.Normal(narrow * x, 1.0), obs=y)


def test_refuses_a_belief_that_the_dtype_cannot_express(float32: None) -> None:
    """An error names the latent; in float64 there is none."""
    with pytest.raises(adfpp.PriorError, match="'narrow'"):
        adfpp.ADF(too_narrow).init(KEY, np.ones(3), y=np.ones(3))
    with jax.enable_x64(True):
        state = adfpp.ADF(too_narrow).init(KEY, np.ones(3), y=np.ones(3))
    np.testing.assert_allclose(np.ravel(state.belief.scale), 1e-60)
