"""Priors as factors: one for each element, or for each summand."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, special, stats

import adfpp
from adfpp.model import Program
from tests import models
from tests.model.common import Array, Y, learned, program, refusal, rows, sample, says

DATA = models.rows()


def log_prior(read_as: Program, name: str, theta: np.ndarray, shared: list[np.ndarray]) -> float:
    """Log prior of one latent in unconstrained space, from its factors."""
    groups = read_as.prior_factors[name]

    @jax.jit
    def total(theta: jax.Array, inputs: list[jax.Array]) -> jax.Array:
        out = jnp.zeros(())
        for group in groups:
            assert group.factors.tail is not None
            _, field = group.factors.matrices(theta, *inputs)
            log_factor = group.factors.tail(*inputs).log_factor
            out = out + sum(log_factor(field[e], e) for e in range(group.factors.count))
        return out

    return float(total(jnp.asarray(theta), read_as.prior_inputs(shared)))


def correlated(x: Array, g: Array, n_groups: int, y: Array) -> None:
    """Varying intercepts and slopes with learned scales and a learned correlation."""
    tau: Array = sample("tau", dist.HalfNormal(1).expand([2]).to_event(1))
    chol: Array = sample("chol", dist.LKJCholesky(2, 2.0))
    mu: Array = sample("mu", dist.Normal(0, 2).expand([2]).to_event(1))
    with numpyro.plate("groups", n_groups):
        w: Array = sample("w", dist.MultivariateNormal(mu, scale_tril=tau[:, None] * chol))
    with rows(x):
        sample("y", dist.Normal(w[g, 0] + w[g, 1] * x, 0.5), obs=y)


def grouped(seed: int, n_groups: int, n_rows: int) -> dict[str, np.ndarray]:
    """Rows in groups, whose effects have sds 0.6 and 0.4 and the correlation 0.5."""
    rng = np.random.default_rng(seed)
    w = rng.multivariate_normal([1.0, -0.5], [[0.36, 0.12], [0.12, 0.16]], size=n_groups)
    g, x = np.repeat(np.arange(n_groups), n_rows), rng.normal(size=n_groups * n_rows)
    return {"g": g, "x": x, "y": w[g, 0] + w[g, 1] * x + 0.5 * rng.normal(size=len(x))}


GROUPED = grouped(0, 8, 10)


def test_a_hierarchy_has_a_factor_for_each_group() -> None:
    """With the density of the prior, which couples a group to its mean and scale."""
    read_as = program(models.groups, DATA.x, DATA.group, DATA.y)
    groups = read_as.prior_factors
    assert list(groups) == ["mu", "tau", "a"]
    (a,) = groups["a"]
    assert a.latent is not None
    assert (a.key, a.latent.name, a.factors.count) == ("a", "a", models.GROUPS)
    theta = np.array([0.3, -0.2, *np.linspace(-1.0, 1.0, models.GROUPS)])
    expected = stats.norm.logpdf(theta[2:], 0.3, np.exp(-0.2)).sum()
    np.testing.assert_allclose(log_prior(read_as, "a", theta, []), expected, rtol=1e-10)
    np.testing.assert_allclose(log_prior(read_as, "tau", theta, []), stats.norm.logpdf(-0.2, -0.5, 0.5), rtol=1e-10)


class Walk(dist.Distribution):
    """A random walk of four steps, whose log-density is written as a sum."""

    arg_constraints = {"scale": dist.constraints.positive}
    support = dist.constraints.real_vector  # pyright: ignore[reportAssignmentType]

    def __init__(self, scale: Array, *, validate_args: bool | None = None) -> None:
        self.scale = scale
        super().__init__((), (4,), validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        first = dist.Normal(0.0, self.scale).log_prob(value[..., 0])
        return first + dist.Normal(value[..., :-1], self.scale).log_prob(value[..., 1:]).sum(-1)


def walk(y: Array, width: Array) -> None:
    """A random walk whose scale is learned."""
    scale = sample("scale", dist.LogNormal(0.0, width))
    steps = sample("steps", Walk(scale))
    with rows(y):
        sample("y", dist.Normal(steps.sum(), 1.0), obs=y)


def test_a_sum_is_cut_into_its_summands() -> None:
    """A factor a step, which reads the scale and one difference, under keys of their own."""
    read_as = program(walk, Y, np.asarray(0.5))
    groups = read_as.prior_factors["steps"]
    assert [group.key for group in groups] == ["steps", *(f"steps#{i}" for i in range(1, len(groups)))]
    assert max(group.factors.field_size for group in groups) == 2
    theta = np.array([-0.3, 0.5, 0.1, 0.4, 1.0])
    steps = np.diff(theta[1:], prepend=0.0)
    expected = stats.norm.logpdf(steps, 0.0, np.exp(-0.3)).sum()
    np.testing.assert_allclose(log_prior(read_as, "steps", theta, [np.asarray(0.5)]), expected, rtol=1e-10)


def test_values_of_shared_arrays_are_inputs() -> None:
    """The factors of one program serve every value: only shapes are needed to build them."""
    read_as = program(walk, Y, np.asarray(0.5))
    theta = np.array([-0.3, 0.5, 0.1, 0.4, 1.0])
    for width in (0.5, 2.0):
        got = log_prior(read_as, "scale", theta, [np.asarray(width)])
        np.testing.assert_allclose(got, stats.norm.logpdf(-0.3, 0.0, width), rtol=1e-10)


def test_a_prior_that_is_constant_has_no_factor() -> None:
    """A discrete latent with even odds says nothing of any value."""

    def model(y: Array) -> None:
        c = sample("c", dist.Bernoulli(logits=0.0))
        with numpyro.plate("rows", y.shape[0]):
            sample("y", dist.Normal(c, 1.0), obs=y)

    read_as = program(model, Y)
    logs = jax.jit(read_as.prior().logs)(jnp.zeros(1), *read_as.prior_inputs([]))
    np.testing.assert_allclose(logs[0], np.log(0.5))
    assert all(group.latent == read_as.latents[0] for group in read_as.prior_factors["c"])


def test_correlated_effects_have_a_factor_for_each_group() -> None:
    """A multivariate normal prior in a plate, with scales and a correlation above it: five numbers for each group."""
    read_as = program(correlated, GROUPED["x"], GROUPED["g"], 8, GROUPED["y"])
    (w,) = read_as.prior_factors["w"]
    assert (w.factors.count, w.factors.field_size) == (8, 5)
    assert w.factors.why == "3-dimensional integral: Gaussian in the rest"
    theta = np.concatenate([[0.1, -0.4, 0.3, 0.5, -0.2], np.linspace(-1.0, 1.0, 16)])
    scales, r = np.exp(theta[:2]), np.tanh(theta[2])
    covariance = np.array([[1.0, r], [r, 1.0]]) * np.outer(scales, scales)
    normal: Any = stats.multivariate_normal
    expected = normal([0.5, -0.2], covariance).logpdf(theta[5:].reshape(8, 2)).sum()
    np.testing.assert_allclose(log_prior(read_as, "w", theta, []), expected, rtol=1e-10)


def test_a_random_walk_of_numpyro_has_a_factor_for_each_step() -> None:
    def model(t: Array, y: Array) -> None:
        s = sample("s", dist.HalfNormal(1))
        x: Array = sample("x", dist.GaussianRandomWalk(s, 6))
        with rows(t):
            sample("y", dist.Normal(x[t], 1.0), obs=y)

    read_as = program(model, np.arange(4), Y[:4])
    first, steps = read_as.prior_factors["x"]
    assert [(f.factors.count, f.factors.field_size) for f in (first, steps)] == [(1, 2), (5, 2)]
    theta = np.array([0.2, 0.3, -0.5, 0.1, 0.4, 0.0, 1.0])
    expected = stats.norm.logpdf(np.diff(theta[1:], prepend=0.0), 0.0, np.exp(0.2)).sum()
    np.testing.assert_allclose(log_prior(read_as, "x", theta, []), expected, rtol=1e-10)


def test_a_positive_effect_has_a_field_of_two_numbers() -> None:
    """A log-normal prior with unknown location and scale: the Jacobian of the logarithm cancels."""

    def model(g: Array, y: Array) -> None:
        mu, tau = sample("mu", dist.Normal(0, 1)), sample("tau", dist.HalfNormal(1))
        with numpyro.plate("groups", 3):
            r = sample("r", dist.LogNormal(mu, tau))
        with rows(g):
            sample("y", dist.Poisson(r[g]), obs=y)

    read_as = program(model, np.array([0, 1, 2]), np.array([1, 0, 2]))
    (r,) = read_as.prior_factors["r"]
    assert (r.factors.count, r.factors.field_size) == (3, 2) and "Gaussian in the rest" in r.factors.why
    theta = np.array([0.3, -0.2, 0.1, 0.8, -0.6])
    expected = stats.norm.logpdf(theta[2:], 0.3, np.exp(-0.2)).sum()
    np.testing.assert_allclose(log_prior(read_as, "r", theta, []), expected, rtol=1e-10)


def exact_effects(data: dict[str, np.ndarray], n_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means and sds of the numbers of ``correlated``: algebra for w and mu, a grid for the other three.

    Given the log scales and the correlation's number, a group's estimate from its own rows is normal around mu with the
    covariance of the prior plus that of the estimate, and so mu and the effects are normal. The density of the three is
    smooth and ends far inside the grid, so that sums over the grid have next to no error.
    """
    precision, weighted = np.zeros((n_groups, 2, 2)), np.zeros((n_groups, 2))
    design = np.stack([np.ones_like(data["x"]), data["x"]], 1) / 0.5
    np.add.at(precision, data["g"], design[:, :, None] * design[:, None, :])
    np.add.at(weighted, data["g"], design * data["y"][:, None] / 0.5)
    noise = np.linalg.inv(precision)
    estimate = np.einsum("gij,gj->gi", noise, weighted)
    normal: Any = stats.norm

    def given(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For points ``(n, 3)`` their log-densities, and the means and variances of mu and all effects."""
        scale, r = np.exp(u[:, :2]), np.tanh(u[:, 2])
        correlation = np.ones((len(u), 2, 2))
        correlation[:, 0, 1] = correlation[:, 1, 0] = r
        prior = scale[:, :, None] * correlation * scale[:, None, :]
        inverse = np.linalg.inv(prior[:, None] + noise)
        pull = np.einsum("ngij,gj->ngi", inverse, estimate)
        mu_covariance = np.linalg.inv(inverse.sum(1) + np.eye(2) / 4.0)
        mu = np.einsum("nij,nj->ni", mu_covariance, pull.sum(1))
        log = 0.5 * np.linalg.slogdet(inverse)[1].sum(1) + 0.5 * np.linalg.slogdet(mu_covariance)[1]
        log += 0.5 * np.einsum("ni,ni->n", mu, pull.sum(1)) - 0.5 * np.einsum("ngi,gi->n", pull, estimate)
        log += (normal.logpdf(scale) + u[:, :2]).sum(1) + 2.0 * np.log1p(-r * r)  # LKJ(2): 1 - r², and the Jacobian
        gain = prior[:, None] @ inverse  # an effect is mu + gain (estimate - mu) with the covariance prior - gain prior
        effect = mu[:, None] + np.einsum("ngij,ngj->ngi", gain, estimate - mu[:, None])
        rest = np.eye(2) - gain
        covariance = rest @ prior[:, None] + rest @ mu_covariance[:, None] @ np.swapaxes(rest, -1, -2)
        variance = np.diagonal(covariance, axis1=-2, axis2=-1).reshape(len(u), -1)
        spread = np.diagonal(mu_covariance, axis1=-2, axis2=-1)
        return (
            log,
            np.concatenate([u, mu, effect.reshape(len(u), -1)], 1),
            np.pad(np.concatenate([spread, variance], 1), ((0, 0), (3, 0))),
        )

    centre, width = np.array([-1.0, -1.0, 0.5]), np.full(3, 3.5)
    for points in (15, 15, 15, 33):  # coarse grids show where the fine one has to be
        axis = np.linspace(-1.0, 1.0, points)
        grid = centre + width * np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
        parts = [given(part) for part in np.array_split(grid, 1 + len(grid) * n_groups // 20_000)]
        log, mean, variance = (np.concatenate(a) for a in zip(*parts, strict=True))
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        centre = weight @ grid
        width = np.maximum(9.0 * np.sqrt(weight @ (grid - centre) ** 2), 4.0 * width / points)
    total = weight @ mean
    return total, np.sqrt(weight @ (variance + (mean - total) ** 2))


@pytest.mark.slow
def test_correlated_effects_are_learned() -> None:
    """Against the exact posterior of 20 groups: means within 0.05 sd, sds within 10 %, all priors visited."""
    groups = 20
    data = grouped(0, groups, 10)
    ep = adfpp.EP(correlated)
    result = ep.run(jax.random.key(0), data["x"], data["g"], groups, data["y"], progress_bar=False)
    assert result.info.converged and set(result.info.priors.values()) == {0}
    post = result.posterior
    mean, sd = np.asarray(post.belief.mean), np.asarray(post.family.spread(post.belief, post.program.size))
    exact_mean, exact_sd = exact_effects(data, groups)
    np.testing.assert_array_less(np.abs(mean - exact_mean) / exact_sd, 0.05)
    np.testing.assert_allclose(sd / exact_sd, 1.0, atol=0.1)


NODES = (np.array([0, 1, 2, 3, 0]), np.array([1, 2, 3, 4, 3]))  # five areas, one of them with a single neighbour


def neighbours(area: Array, n_areas: int, nodes: Array, y: Array) -> None:
    """Effects of areas under an intrinsic autoregression, whose scale is learned and whose sum is nearly 0."""
    sigma = sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("areas", n_areas):
        phi: Array = sample("phi", dist.Normal(0, 3))
    squares = jnp.sum((phi[nodes[0]] - phi[nodes[1]]) ** 2)
    numpyro.factor("ties", -0.5 * squares / sigma**2 - (n_areas - 1) * jnp.log(sigma))
    sample("centred", dist.Normal(phi.sum(), 0.01), obs=0.0)
    with rows(area):
        sample("y", dist.Normal(phi[area], 0.5), obs=y)


AREA = np.repeat(np.arange(5), 3)
EFFECTS = np.array([0.6, 0.2, -0.5, -0.9, 0.4])[AREA] + 0.5 * np.random.default_rng(4).normal(size=15)


def test_a_penalty_of_neighbours_is_gaussian_given_its_scale() -> None:
    """The constraint is part of a Gaussian block, and what the scale enters is one factor with a single integral."""
    read_as = program(neighbours, AREA, 5, NODES, EFFECTS)
    assert read_as.prior_terms == ("ties", "centred")
    projection = read_as.project_prior(list(NODES))
    (block,) = [b for b in projection.blocks if len(b.where) == 5]
    precision = np.eye(5) / 9.0 + np.ones((5, 5)) / 0.01**2
    np.testing.assert_allclose(block.root @ block.root.T, np.linalg.inv(precision), atol=1e-8)
    normal: Any = stats.norm
    np.testing.assert_allclose(block.log_mass, normal.logpdf(0.0, 0.0, np.sqrt(5 * 9.0 + 0.01**2)), rtol=1e-8)
    assert projection.terms == ("ties",) and projection.coupled == ()
    (ties,) = read_as.prior_factors["ties"]
    assert ties.latent is None
    assert (ties.factors.count, ties.factors.field_size) == (1, 6) and "1-dimensional" in ties.factors.why
    theta = np.array([0.2, 0.3, -0.5, 0.1, 0.4, 0.0])
    expected = -0.5 * np.sum((theta[1:][NODES[0]] - theta[1:][NODES[1]]) ** 2) * np.exp(-0.4) - 4 * 0.2
    np.testing.assert_allclose(log_prior(read_as, "ties", theta, list(NODES)), expected, rtol=1e-10)


@pytest.mark.slow
def test_the_scale_of_a_penalty_is_learned() -> None:
    """Given the scale all is Gaussian, so that the exact posterior needs an integral over one number."""
    result = adfpp.EP(neighbours).run(jax.random.key(0), AREA, 5, NODES, EFFECTS, progress_bar=False)
    assert result.info.converged and set(result.info.priors.values()) == {0}
    edges = np.zeros((5, 5))
    edges[range(5), NODES[0]], edges[range(5), NODES[1]] = 1.0, -1.0
    grid = np.linspace(-4.0, 3.0, 1401)
    logs, means, covariances = [], [], []
    for u in grid:
        prior = np.eye(5) / 9.0 + np.ones((5, 5)) / 0.01**2 + edges.T @ edges * np.exp(-2.0 * u)
        precision = prior + np.eye(5) * 3 / 0.25
        slope = np.bincount(AREA, EFFECTS) / 0.25
        mean = np.linalg.solve(precision, slope)
        log_mass = 0.5 * slope @ mean - 0.5 * np.linalg.slogdet(precision)[1]
        logs.append(log_mass - 4 * u + stats.halfnorm.logpdf(np.exp(u)) + u)
        means.append(np.append(u, mean))
        covariances.append(np.linalg.inv(precision))
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    expected = weights @ np.array(means)
    variance = weights @ (np.array(means) - expected) ** 2
    variance[1:] += weights @ np.array([np.diag(c) for c in covariances])
    belief = result.posterior.belief
    assert (np.abs(belief.mean - expected) / np.sqrt(variance)).max() < 0.05
    ratio = np.sqrt(np.diag(belief.scale @ belief.scale.T) / variance)
    np.testing.assert_allclose(ratio[1:], 1.0, atol=0.05)
    np.testing.assert_allclose(ratio[0], 1.0, atol=0.15)  # the log scale is skewed, which no Gaussian is


def test_an_improper_prior_is_made_proper_by_its_terms() -> None:
    """Differences alone leave the level open, which is refused; with a constraint of the sum they do not."""

    def model(area: Array, nodes: Array, centred: bool, y: Array) -> None:
        phi: Array = sample("phi", dist.ImproperUniform(dist.constraints.real_vector, (), (5,)))
        numpyro.factor("ties", -0.5 * jnp.sum((phi[nodes[0]] - phi[nodes[1]]) ** 2))
        if centred:
            sample("centred", dist.Normal(phi.sum(), 0.01), obs=0.0)
        with rows(area):
            sample("y", dist.Normal(phi[area], 0.5), obs=y)

    says(refusal(model, AREA, NODES, False, EFFECTS), "'phi'", "improper", "proper one")
    mean, covariance, _ = learned(model, AREA, NODES, True, EFFECTS)
    edges = np.zeros((5, 5))
    edges[range(5), NODES[0]], edges[range(5), NODES[1]] = 1.0, -1.0
    precision = edges.T @ edges + np.ones((5, 5)) / 0.01**2 + np.eye(5) * 3 / 0.25
    np.testing.assert_allclose(mean, np.linalg.solve(precision, np.bincount(AREA, EFFECTS) / 0.25), atol=1e-8)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), atol=1e-8)


@pytest.mark.slow
def test_a_term_of_a_native_latent_is_a_factor() -> None:
    """Two rates, and a factor that ties them: the expected logarithm of a rate before any row, by SciPy."""

    def model(shown: Array, clicked: Array) -> None:
        a, b = sample("a", dist.Beta(2, 3)), sample("b", dist.Beta(2, 2))
        numpyro.factor("ties", -0.5 * ((a - b) / 0.2) ** 2)
        with rows(shown):
            sample("clicked", dist.Binomial(shown, probs=a), obs=clicked)

    adf = adfpp.ADF(model, family={"a": "beta", "b": "beta"})
    post = adf.get_posterior(adf.init(jax.random.key(0), np.array([3, 4]), np.array([1, 2])))
    mean, sd = post.mean()["a"], post.sd()["a"]
    size = mean * (1.0 - mean) / sd**2 - 1.0

    def expected(f: Callable[[float], float]) -> float:
        def weight(b: float, a: float) -> float:
            return f(a) * stats.beta.pdf(a, 2, 3) * stats.beta.pdf(b, 2, 2) * np.exp(-12.5 * (a - b) ** 2)

        return integrate.dblquad(weight, 0, 1, 0, 1)[0]

    log_mean = expected(np.log) / expected(lambda _: 1.0)
    np.testing.assert_allclose(special.digamma(mean * size) - special.digamma(size), log_mean, rtol=1e-4)
