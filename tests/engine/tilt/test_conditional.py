"""Fields that are Gaussian in most numbers: moments against integrals of another kind."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy import integrate, stats

import adfpp
from adfpp.engine.tilt import AUTO, Conditional
from tests import models

Array = Any


def scaled(h: Array) -> Array:
    """A normal residual h[0] with log scale h[1]."""
    return jax.scipy.stats.norm.logpdf(h[0], 0.0, jnp.exp(h[1]))


def normal_density(x: float, mean: float, variance: float) -> float:
    """Written out: SciPy's distributions are slow one number at a time."""
    return math.exp(-0.5 * (x - mean) ** 2 / variance) / math.sqrt(2 * math.pi * variance)


def cavity(width: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and root of a correlated cavity."""
    mean = np.random.default_rng(int(10 * width)).normal(size=2)
    return mean, np.linalg.cholesky(width**2 * np.array([[1.0, 0.4], [0.4, 0.8]]))


@cache
def by_scipy(width: float) -> tuple[float, np.ndarray, np.ndarray]:
    """Log Z, mean and covariance of h under N(mean, scale scaleᵀ) · N(h_0; 0, e^{2 h_1}): Gaussian in h_0 given h_1."""
    (m0, m1), scale = cavity(width)
    covariance = scale @ scale.T
    slope = covariance[0, 1] / covariance[1, 1]
    rest = covariance[0, 0] - slope * covariance[0, 1]

    def parts(lt: float) -> tuple[float, float, float]:
        centre, noise = m0 + slope * (lt - m1), math.exp(2 * lt)
        weight = normal_density(lt, m1, covariance[1, 1]) * normal_density(0.0, centre, rest + noise)
        gain = rest / (rest + noise)
        return weight, centre - gain * centre, rest * (1 - gain)

    sd = math.sqrt(covariance[1, 1])
    points = np.linspace(m1 - 12 * sd, m1 + 12 * sd, 25)

    def expect(f: Callable[[float, float, float], float]) -> float:
        def integrand(lt: float) -> float:
            weight, centre, variance = parts(lt)
            return weight * f(lt, centre, variance)

        ends = zip(points[:-1], points[1:], strict=True)
        return sum(integrate.quad(integrand, a, b, epsabs=1e-16, epsrel=1e-12)[0] for a, b in ends)

    z = expect(lambda lt, c, v: 1.0)
    first = np.array([expect(lambda lt, c, v: c), expect(lambda lt, c, v: lt)]) / z
    cross = expect(lambda lt, c, v: c * lt) / z
    second = np.array([[expect(lambda lt, c, v: c * c + v) / z, cross], [cross, expect(lambda lt, c, v: lt * lt) / z]])
    return math.log(z), first, second - np.outer(first, first)


RULES = {
    False: jax.jit(lambda m, s: Conditional((1,))(scaled, m, s)),
    True: jax.jit(lambda m, s: Conditional((0,))(lambda h: scaled(h[::-1]), m, s)),
}


@pytest.mark.parametrize("width", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("swapped", [False, True])
def test_unknown_scales_against_scipy(width: float, swapped: bool) -> None:
    """Narrow and wide cavities, correlated, the log scale in either place: to 1e-7."""
    mean, scale = cavity(width)
    log_z, exact_mean, exact = by_scipy(width)
    order = [1, 0] if swapped else [0, 1]
    exact_mean, exact = exact_mean[order], exact[np.ix_(order, order)]
    # in the other order the root of the covariance is another triangle: compare in h
    root = np.linalg.cholesky((scale @ scale.T)[np.ix_(order, order)])
    out = RULES[swapped](jnp.asarray(mean[order]), jnp.asarray(root))
    sd = np.sqrt(np.diag(exact))
    assert float(out.log_z) == pytest.approx(log_z, abs=1e-7)
    np.testing.assert_allclose((mean[order] + root @ out.shift - exact_mean) / sd, 0.0, atol=1e-7)
    tilted = root @ np.asarray(out.root)
    np.testing.assert_allclose((tilted @ tilted.T - exact) / np.outer(sd, sd), 0.0, atol=1e-7)
    assert float(out.error) < 1e-6


@pytest.mark.slow
def test_three_numbers_against_a_grid() -> None:
    """Two of them Gaussian given the third: 80 Gauss-Hermite nodes an axis find the same."""

    def factor(h: Array) -> Array:
        return jax.scipy.stats.norm.logpdf(1.3, h[0] + jnp.exp(h[1]) * h[2], 0.8)

    mean, scale = jnp.array([0.2, -0.5, 0.4]), 0.6 * jnp.linalg.cholesky(jnp.eye(3) + 0.3)
    out = jax.jit(lambda: Conditional((1,))(factor, mean, scale))()
    x, w = hermegauss(80)
    u = np.stack(np.meshgrid(x, x, x, indexing="ij"), -1).reshape(-1, 3)
    weight = np.einsum("i,j,k->ijk", w, w, w).reshape(-1) / w.sum() ** 3
    weight = weight * np.exp(np.asarray(jax.vmap(factor)(mean + u @ scale.T)))
    shift = weight @ u / weight.sum()
    assert float(out.log_z) == pytest.approx(np.log(weight.sum()), abs=1e-7)
    np.testing.assert_allclose(out.shift, shift, atol=1e-7)
    centred = u - shift
    np.testing.assert_allclose(out.root @ out.root.T, (centred.T * weight) @ centred / weight.sum(), atol=1e-7)


def test_wholly_gaussian_fields_need_no_integral() -> None:
    """Conjugate algebra, with a direction that the cavity does not know."""
    noise = np.diag([0.5, 2.0])
    at = np.array([1.0, -1.0])

    def factor(h: Array) -> Array:
        away = h - at
        return -0.5 * away @ jnp.asarray(np.linalg.inv(noise)) @ away - 0.5 * np.log(np.linalg.det(2 * np.pi * noise))

    mean, scale = np.array([0.3, 0.1]), np.array([[2.0, 0.0], [1.0, 0.0]])
    out = jax.jit(lambda m, s: Conditional(())(factor, m, s))(jnp.asarray(mean), jnp.asarray(scale))
    total = scale @ scale.T + noise
    normal: Any = stats.multivariate_normal
    assert float(out.log_z) == pytest.approx(normal(mean, total).logpdf(at), abs=1e-12)
    gain = scale.T @ np.linalg.inv(total)
    np.testing.assert_allclose(out.shift, gain @ (at - mean), atol=1e-12)
    np.testing.assert_allclose(out.root @ out.root.T, np.eye(2) - gain @ scale, atol=1e-12)


def moments_on_a_grid(
    nodes: int,
    mean: np.ndarray,
    root: np.ndarray,
    outer: int,
    inner: Callable[..., Array],
) -> tuple[float, np.ndarray, np.ndarray]:
    """Log Z, mean and covariance of h by a tensor of Gauss-Hermite nodes over the first ``outer`` whitened numbers.

    ``inner`` gives the log mass, the mean and the covariance of the other numbers of h at one value of the first ones,
    which has to include what they are under the cavity given these.
    """
    x, w = hermegauss(nodes)
    grid = np.stack(np.meshgrid(*[x] * outer, indexing="ij"), -1).reshape(-1, outer)
    weights = np.prod(np.stack(np.meshgrid(*[w / w.sum()] * outer, indexing="ij"), -1), -1).reshape(-1)
    values = mean[:outer] + grid @ root[:outer, :outer].T
    log_mass, centres, covariances = (np.asarray(a) for a in jax.jit(jax.vmap(inner))(grid, values))
    weights = weights * np.exp(log_mass)
    z = weights.sum()
    points = np.concatenate([values, centres], 1)
    first = weights @ points / z
    centred = points - first
    second = (centred.T * weights) @ centred / z
    second[outer:, outer:] += np.einsum("n,nij->ij", weights, covariances) / z
    return math.log(z), first, second


def correlated(h: Array) -> Array:
    """Two numbers h[3:] with mean zero, two log scales and a correlation, all unknown."""
    s, t, r = jnp.exp(h[0]), jnp.exp(h[1]), jnp.tanh(h[2])
    covariance = jnp.array([[s * s, r * s * t], [r * s * t, t * t]])
    return jax.scipy.stats.multivariate_normal.logpdf(h[3:], jnp.zeros(2), covariance)


def product(h: Array) -> Array:
    """A normal observation of the product of two vectors of four numbers."""
    return jax.scipy.stats.norm.logpdf(0.7, h[:4] @ h[4:], 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quadrature", "Monte Carlo"])
def test_several_outer_numbers_against_a_grid(name: str) -> None:
    """Three by quadrature, four by Monte Carlo: within 1e-5, or within four of its standard errors."""
    factor, outer, nodes = (correlated, 3, 40) if name == "quadrature" else (product, 4, 14)
    size = 5 if name == "quadrature" else 8
    rng = np.random.default_rng(1)
    mean, mixed = 0.3 * rng.normal(size=size), rng.normal(size=(size, size))
    root = np.linalg.cholesky(0.2 * np.eye(size) + 0.03 * mixed @ mixed.T)
    rest, below = root[outer:, outer:], root[outer:, :outer]

    def inner(u: Array, value: Array) -> tuple[Array, Array, Array]:
        centre, covariance = mean[outer:] + below @ u, rest @ rest.T
        if name == "quadrature":
            s, t, r = jnp.exp(value[0]), jnp.exp(value[1]), jnp.tanh(value[2])
            noise, seen, design = jnp.array([[s * s, r * s * t], [r * s * t, t * t]]), jnp.zeros(2), jnp.eye(2)
        else:
            noise, seen, design = jnp.array([[0.25]]), jnp.array([0.7]), value[None]
        total = design @ covariance @ design.T + noise
        gain = covariance @ design.T @ jnp.linalg.inv(total)
        log_mass = jax.scipy.stats.multivariate_normal.logpdf(seen, design @ centre, total)
        return log_mass, centre + gain @ (seen - design @ centre), covariance - gain @ design @ covariance

    log_z, exact_mean, exact = moments_on_a_grid(nodes, mean, root, outer, inner)
    choice = AUTO.choose_conditional(tuple(range(outer)))
    assert choice is not None
    out = jax.jit(lambda: choice.rule(factor, jnp.asarray(mean), jnp.asarray(root)))()
    bound = 1e-5 if name == "quadrature" else 4.0 * float(out.error)
    assert bound < 0.3
    sd = np.sqrt(np.diag(exact))
    tilted = root @ np.asarray(out.root)
    assert float(out.log_z) == pytest.approx(log_z, abs=bound)
    np.testing.assert_allclose((mean + root @ out.shift - exact_mean) / sd, 0.0, atol=bound)
    np.testing.assert_allclose((tilted @ tilted.T - exact) / np.outer(sd, sd), 0.0, atol=bound)


def test_the_plan_says_so() -> None:
    """Regression with unknown noise: a field of two, an integral of one."""
    data = models.values()
    (factor,) = adfpp.ADF(models.unknown_noise).explain(data.x, y=data.y).factors
    assert factor.field_size == 2 and factor.rule == "Conditional" and "1-dimensional integral" in factor.why
