"""Expectation propagation as a user meets it: options, powers, priors, and results that repeat."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.experimental.ode import odeint
from scipy import optimize, special, stats

import adfpp
from adfpp import EP, NotConverged
from adfpp.distributions import Probit
from tests.learn.ep.common import (
    Array,
    clutter,
    data,
    exact_linear,
    linear,
    mean_and_sd,
    moments,
    probit,
    run,
    sample,
    sorted_stream,
)

KEY = jax.random.key(0)


@pytest.mark.parametrize("power", [0.5, 0.0])
def test_the_dial_of_power_leaves_gaussian_factors_alone(power: float) -> None:
    """A Gaussian factor is its own site at every power; the evidence, too."""
    x, y, _ = data(10, 2)
    result = run(linear, x, of={"y": y}, power=power)
    mean, covariance, evidence = exact_linear(x, y)
    np.testing.assert_allclose(moments(result)[0], mean, atol=1e-6)
    np.testing.assert_allclose(moments(result)[1], covariance, atol=1e-6)
    assert result.log_evidence == pytest.approx(evidence, abs=1e-5)


@pytest.mark.slow
def test_a_sorted_stream_ends_where_a_mixed_one_does() -> None:
    """Order means nothing to EP, though one pass of ADF over the same rows is many sds away."""
    model, (x,), kwargs = sorted_stream()
    sorted_rows = run(model, x, of=kwargs)
    mixed = np.random.default_rng(5).permutation(len(x))
    other = run(model, x[mixed], of={"y": kwargs["y"][mixed]}, key=1)
    mean, sd = mean_and_sd(sorted_rows)
    assert sorted_rows.info.converged and other.info.converged
    np.testing.assert_allclose((mean - moments(other)[0]) / sd, 0.0, atol=5e-3)
    adf = adfpp.ADF(model).run(KEY, x, progress_bar=False, **kwargs)
    assert np.abs((np.asarray(adf.state.belief.mean) - mean) / sd).max() > 10.0
    found = optimize.minimize(
        lambda w: np.logaddexp(0, -(2 * kwargs["y"] - 1) * (x @ w)).sum() + w @ w / 12.5, np.zeros(4), tol=1e-10
    )
    # of 3000 rows the posterior is nearly Gaussian: its mean is close to the mode
    np.testing.assert_allclose((mean - found.x) / sd, 0.0, atol=0.1)


def test_one_row() -> None:
    """n = 1 is ADF: one sweep, and the first does nothing more."""
    x, _, y = data(1, 2)
    result = run(probit, x, of={"y": y})
    state, info = adfpp.ADF(probit).run(KEY, x, y=y, progress_bar=False)
    np.testing.assert_allclose(result.state.belief.mean, state.belief.mean, atol=1e-9)
    assert result.info.converged and result.log_evidence == pytest.approx(float(info.log_z[0]), abs=1e-9)


def variational(log_factor: Callable[[np.ndarray], np.ndarray], start: tuple[float, float], prior_sd: float) -> Any:
    """The Gaussian of least KL(q || p) in one dimension, by SciPy on a fine grid of its own."""
    t, w = special.roots_hermitenorm(201)
    w = w / w.sum()

    def loss(u: np.ndarray) -> float:
        mean, sd = u[0], np.exp(u[1])
        expected = w @ log_factor(mean + sd * t)
        return -(expected - (mean**2 + sd**2) / (2 * prior_sd**2) + u[1])

    found = optimize.minimize(
        loss, [start[0], np.log(start[1])], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}
    )
    return found.x[0], np.exp(found.x[1])


@pytest.mark.slow
def test_power_is_a_dial_from_mass_covering_to_mode_seeking() -> None:
    """On a mixture the variance shrinks with the power, down to the variational Gaussian's."""
    rng = np.random.default_rng(9)
    y = np.concatenate([1.0 + rng.normal(size=8), 8.0 * rng.normal(size=10)])

    def log_factor(mu: np.ndarray) -> np.ndarray:
        inside = np.log(0.5) + stats.norm.logpdf(y[:, None], mu, 1.0)
        return np.logaddexp(inside, np.log(0.5) + stats.norm.logpdf(y[:, None], 0.0, 10.0)).sum(0)

    results = {power: run(clutter, y, power=power, tol=1e-6) for power in (1.0, 0.5, 0.0)}
    assert all(r.info.converged for r in results.values())
    mean, sd = {}, {}
    for power, result in results.items():
        (mean[power],), (sd[power],) = mean_and_sd(result)
    assert sd[1.0] > sd[0.5] > sd[0.0]
    best = variational(log_factor, (mean[0.0], sd[0.0]), 10.0)
    assert abs(mean[0.0] - best[0]) / best[1] < 1e-3 and sd[0.0] == pytest.approx(best[1], rel=1e-3)
    # the limit's evidence is the ELBO, a lower bound
    grid = np.linspace(-60, 60, 200_001)
    exact = np.log(np.trapezoid(np.exp(log_factor(grid) + stats.norm.logpdf(grid, 0, 10)), grid))
    assert results[0.0].log_evidence < exact
    assert abs(results[1.0].log_evidence - exact) < abs(results[0.0].log_evidence - exact)


@pytest.mark.slow
def test_the_limit_needs_a_likelihood_without_zeros() -> None:
    """The noise-free step: its logarithm has no mean under any Gaussian, and that is said."""

    def step(x: Array, y: Array | None = None) -> None:
        w = sample("w", dist.Normal(0, 1.0).expand([x.shape[-1]]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            sample("y", Probit(x @ w, noise=0.0), obs=y)

    x, _, y = data(8, 2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = run(step, x, of={"y": y}, power=0.0)
    assert not result.info.converged
    assert any(w.category is NotConverged and "limit of power 0" in str(w.message) for w in told)


@pytest.mark.slow
def test_the_limit_is_numpyros_variational_gaussian() -> None:
    """Student-t regression: α → 0 equals a long run of AutoMultivariateNormal to .05 sd."""
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoMultivariateNormal

    def student(x: Array, y: Array | None = None) -> None:
        w = sample("w", dist.Normal(0, 10.0).expand([x.shape[-1]]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            sample("y", dist.StudentT(2.0, x @ w, 0.5), obs=y)

    rng = np.random.default_rng(10)
    x = rng.normal(size=(12, 2))
    y = x @ [1.0, -1.0] + 0.5 * rng.standard_t(2, size=12)
    results = {power: run(student, x, of={"y": y}, power=power, tol=1e-6) for power in (1.0, 0.5, 0.0)}
    sds = [np.sqrt(np.diag(moments(results[p])[1])) for p in (1.0, 0.5, 0.0)]
    assert (sds[0] > sds[1]).all() and (sds[1] > sds[2]).all()
    guide = AutoMultivariateNormal(student)
    steps = numpyro.optim.Adam(lambda i: 0.02 * 0.3 ** (i / 3000))
    svi = SVI(student, guide, steps, Trace_ELBO(num_particles=64, vectorize_particles=True))
    fitted = svi.run(jax.random.key(1), 12000, x, y=y, progress_bar=False)
    found = guide.get_posterior(fitted.params)
    np.testing.assert_allclose((moments(results[0.0])[0] - found.mean) / sds[2], 0.0, atol=0.05)
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance_matrix)) / sds[2], 1.0, atol=0.05)


def test_results_repeat_and_remember() -> None:
    """Bit for bit with the same key; the result knows its run."""
    x, _, y = data(40, 3)
    ep = EP(probit)
    one, two = (ep.run(KEY, x, y=y, progress_bar=False) for _ in range(2))
    np.testing.assert_array_equal(one.state.belief.mean, two.state.belief.mean)
    np.testing.assert_array_equal(one.again(x, y=y).state.belief.mean, one.state.belief.mean)
    assert one.run.learner is ep and one.run.rows == 40
    state, info = one
    assert ep.get_posterior(state).summary().equals(ep.get_posterior(one).summary())
    assert state.sites[0].shape == (40, 1, 2) and info.log_z.shape == (40,)
    np.testing.assert_array_equal(ep.run(KEY, x, y=y, progress_bar=False, prior=None).info.log_z, info.log_z)


def test_posterior_as_prior() -> None:
    """Two halves, one after the other, are near the whole."""
    x, _, y = data(80, 3)
    ep = EP(probit)
    half = ep.run(KEY, x[:40], y=y[:40], progress_bar=False)
    both = ep.run(KEY, x[40:], y=y[40:], prior=half.posterior, progress_bar=False)
    whole = ep.run(KEY, x, y=y, progress_bar=False)
    mean, sd = mean_and_sd(whole)
    np.testing.assert_allclose((moments(both)[0] - mean) / sd, 0.0, atol=0.15)
    assert half.log_evidence + both.log_evidence == pytest.approx(whole.log_evidence, abs=0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"power": 1.5}, "power must lie"),
        ({"schedule": "random"}, "schedule='random'"),
        ({"damping": 0.0}, "damping must lie"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"window": 5}, "belongs to schedule window"),
        ({"schedule": "window"}, "needs window="),
        ({"batch_size": 5}, "belongs to schedule minibatch or stochastic"),
        ({"family": "diagonal", "schedule": "parallel"}, "needs family='full'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], words: str) -> None:
    """Before anything runs."""
    with pytest.raises(ValueError, match=words):
        EP(linear, **options)


def test_states_of_others_are_refused() -> None:
    """Sites of other rows; a diagonal belief; a model with a clashing argument."""
    x, _, y = data(40, 3)
    ep = EP(probit)
    result = ep.run(KEY, x[:20], y=y[:20], progress_bar=False)
    with pytest.raises(ValueError, match="sites of shapes"):
        ep.run(KEY, x, y=y, state=result, progress_bar=False)
    narrow = adfpp.ADF(probit, family="diagonal").run(KEY, x, y=y, progress_bar=False)
    with pytest.raises(ValueError, match="its family is diagonal, here it is full"):
        ep.run(KEY, x, y=y, state=narrow, progress_bar=False)
    with pytest.raises(ValueError, match="'prior' is also an option"):
        EP(lambda x, prior: None)
    wrong: Any = 3
    with pytest.raises(TypeError, match="prior must be"):
        ep.init(KEY, x, y=y, prior=wrong)


@pytest.mark.slow
def test_a_refused_prior_is_told_and_nothing_converges() -> None:
    """The points of its rule are too few by intention: run, info and check name the latent whose prior is not used."""

    def model(group: Array, y: Array) -> None:
        mu, tau = sample("mu", dist.Normal(0, 1)), sample("tau", dist.HalfNormal(1))
        with numpyro.plate("groups", 3):
            w = sample("w", dist.Normal(mu, tau))
        with numpyro.plate("rows", y.shape[0]):
            sample("y", dist.Normal(w[group], 0.5), obs=y)

    hopeless = adfpp.Moments(max_quadrature=0, monte_carlo=adfpp.MonteCarlo(points=64, ess_min=64.0, rounds=0))
    group, y = np.arange(12) % 3, np.linspace(-1.0, 1.0, 12)
    with pytest.warns(adfpp.RowsMarked, match=r"prior of .*'w' \(UNRELIABLE\).* not learned"):
        ep = EP(model, moments=hopeless)
        result = ep.run(KEY, group, y, progress_bar=False)
    assert not result.info.converged and adfpp.Status(result.info.priors["w"]).refused
    found = adfpp.check(ep, result, group, y, progress_bar=False)
    assert found.verdict == "do not use it as it is" and "the prior of 'tau', 'w' could not be used" in str(found)
    adf = adfpp.ADF(model, moments=hopeless)
    with pytest.warns(adfpp.RowsMarked, match=r"prior of 'w' \(UNRELIABLE\)"):
        absorbed = adf.run(KEY, group, y, progress_bar=False)
    assert adfpp.Status(int(absorbed.state.prior_status["w"])).refused
    found = adfpp.check(adf, absorbed, group, y, progress_bar=False)
    assert found.verdict == "do not use it as it is" and "the prior of 'w' could not be used" in str(found)


def test_a_run_in_which_every_row_is_refused_has_not_converged() -> None:
    x, y, _ = data(10, 2)
    with pytest.warns(adfpp.RowsMarked, match="10 of 10 rows"):
        result = run(linear, np.full_like(x, np.nan), of={"y": y})
    assert not result.info.converged


@pytest.mark.slow
@pytest.mark.parametrize("how", ["auto", "montecarlo"])
def test_a_likelihood_with_reverse_derivatives_only(how: str) -> None:
    """It gives the moments of the same likelihood with both modes, and does not disturb the projection of the prior."""

    @jax.custom_vjp
    def cube(u: Any) -> Any:
        return u**3

    cube.defvjp(lambda u: (u**3, u), lambda u, g: (3.0 * u**2 * g,))

    def model(x: Any, y: Any, power: Any) -> None:
        w: Any = sample("w", dist.LogNormal(0, 0.5).expand([2]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            sample("y", dist.Normal(power(x * w).sum(-1), 0.5), obs=y)

    def learned(power: Any) -> Any:
        adf = adfpp.ADF(lambda x, y: model(x, y, power), moments=how)
        return adf.run(KEY, np.array([[1.0, -0.5], [0.3, 0.8]]), np.array([0.5, 0.2]), progress_bar=False)

    one, other = learned(cube), learned(lambda u: u**3)
    np.testing.assert_allclose(one.state.belief.mean, other.state.belief.mean, atol=1e-6)


@pytest.mark.slow
def test_a_differential_equation_in_the_likelihood() -> None:
    """One compartment with absorption, against the closed form of its solution on a fine grid of both rates."""
    times, sd = np.linspace(0.5, 8.0, 8), 0.1

    def solution(ka: Any, ke: Any, t: Any) -> Any:
        return 2.0 * ka / (ka - ke) * (np.exp(-ke * t) - np.exp(-ka * t))

    def model(t: Any, y: Any = None) -> None:
        ka = jnp.exp(numpyro.sample("log_ka", dist.Normal(0.0, 0.5)))
        ke = jnp.exp(numpyro.sample("log_ke", dist.Normal(-1.5, 0.5)))

        def rates(amount: Any, _: Any, ka: Any, ke: Any) -> Any:
            return jnp.stack([-ka * amount[0], ka * amount[0] - ke * amount[1]])

        def at(t: Any) -> Any:
            return odeint(rates, jnp.array([2.0, 0.0]), jnp.stack([0.0 * t, t]), ka, ke, rtol=1e-6, atol=1e-6)[-1, 1]

        with numpyro.plate("rows", t.shape[0]):
            numpyro.sample("y", dist.Normal(jax.vmap(at)(t), sd), obs=y)

    y = solution(1.2, 0.25, times) + sd * np.random.default_rng(0).normal(size=8)
    result = adfpp.EP(model).run(jax.random.key(0), times, y=y, progress_bar=False)
    a, e = np.meshgrid(np.linspace(-2.0, 2.0, 801), np.linspace(-3.4, 0.6, 801), indexing="ij")
    mu = solution(np.exp(a)[..., None] + 1e-9, np.exp(e)[..., None], times)
    log = stats.norm.logpdf(y, mu, sd).sum(-1) + stats.norm.logpdf(a, 0, 0.5) + stats.norm.logpdf(e, -1.5, 0.5)
    weight = np.exp(log - log.max())
    evidence = np.log(weight.sum() * 0.005**2) + log.max()
    weight /= weight.sum()
    means = [(weight * a).sum(), (weight * e).sum()]
    sds = np.sqrt([(weight * (v - m) ** 2).sum() for v, m in zip((a, e), means, strict=True)])
    # EP is an approximation: a tenth of an sd
    got = result.posterior
    np.testing.assert_allclose([got.mean()["log_ka"], got.mean()["log_ke"]], means, atol=0.1 * sds.min())
    np.testing.assert_allclose([got.sd()["log_ka"], got.sd()["log_ke"]], sds, rtol=0.05)
    assert abs(result.log_evidence - evidence) < 0.05
