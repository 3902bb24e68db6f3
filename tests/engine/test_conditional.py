"""Fields that are Gaussian in all but one number: against SciPy's integrals, and found where they are."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy import integrate, stats

import adfpp
from adfpp.engine.tilt import Conditional
from adfpp.engine.trace.split import gaussian_but_for, smallest_cut, trace

Array = Any
sample: Callable[..., Any] = numpyro.sample


def scaled(h: Array) -> Array:
    """A normal residual h[0] with log scale h[1]."""
    return jax.scipy.stats.norm.logpdf(h[0], 0.0, jnp.exp(h[1]))


def by_scipy(mean: np.ndarray, scale: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Moments of u under N(u; 0, I) · N(h_0; 0, e^{h_1}), h = mean + scale u: Gaussian in h_0 given h_1, then quad."""
    covariance = scale @ scale.T
    m0, m1 = mean
    slope = covariance[0, 1] / covariance[1, 1]
    rest = covariance[0, 0] - slope * covariance[0, 1]

    def parts(lt: float) -> tuple[float, float, float]:
        centre, noise = m0 + slope * (lt - m1), np.exp(2 * lt)
        weight = stats.norm.pdf(lt, m1, np.sqrt(covariance[1, 1])) * stats.norm.pdf(0.0, centre, np.sqrt(rest + noise))
        gain = rest / (rest + noise)
        return float(weight), float(centre - gain * centre), float(rest * (1 - gain))

    sd = np.sqrt(covariance[1, 1])
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
    inverse = np.linalg.inv(scale)
    return np.log(z), inverse @ (first - mean), inverse @ (second - np.outer(first, first)) @ inverse.T


@pytest.mark.parametrize("width", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("swapped", [False, True])
def test_unknown_scales_against_scipy(width: float, swapped: bool) -> None:
    """Narrow and wide cavities, correlated, the log scale in either place: to 1e-7."""
    rng = np.random.default_rng(int(10 * width))
    mean, scale = rng.normal(size=2), np.linalg.cholesky(width**2 * np.array([[1.0, 0.4], [0.4, 0.8]]))
    log_z, shift, covariance = by_scipy(mean, scale)
    order = [1, 0] if swapped else [0, 1]
    rule = jax.jit(lambda m, s: Conditional(0 if swapped else 1)(lambda h: scaled(h[jnp.array(order)]), m, s))
    # in the other order the root of the covariance is another triangle: compare in h
    other = np.linalg.cholesky((scale @ scale.T)[np.ix_(order, order)])
    found = rule(jnp.asarray(mean[order]), jnp.asarray(other))
    root = other @ np.asarray(found.root)
    exact = scale @ covariance @ scale.T
    sd = np.sqrt(np.diag(exact))
    assert float(found.log_z) == pytest.approx(log_z, abs=1e-7)
    np.testing.assert_allclose((other @ found.shift - (scale @ shift)[order]) / sd[order], 0.0, atol=1e-7)
    np.testing.assert_allclose(
        (root @ root.T) / np.outer(sd, sd)[np.ix_(order, order)],
        (exact / np.outer(sd, sd))[np.ix_(order, order)],
        atol=1e-7,
    )
    assert float(found.error) < 1e-6


@pytest.mark.slow
def test_three_numbers_against_a_grid() -> None:
    """Two of them Gaussian given the third: 80 Gauss-Hermite nodes an axis find the same."""

    def factor(h: Array) -> Array:
        return jax.scipy.stats.norm.logpdf(1.3, h[0] + jnp.exp(h[1]) * h[2], 0.8)

    mean, scale = jnp.array([0.2, -0.5, 0.4]), 0.6 * jnp.linalg.cholesky(jnp.eye(3) + 0.3)
    ours = jax.jit(lambda: Conditional(1)(factor, mean, scale))()
    x, w = hermegauss(80)
    u = np.stack(np.meshgrid(x, x, x, indexing="ij"), -1).reshape(-1, 3)
    weight = np.einsum("i,j,k->ijk", w, w, w).reshape(-1) / w.sum() ** 3
    weight = weight * np.exp(np.asarray(jax.vmap(factor)(mean + u @ scale.T)))
    shift = weight @ u / weight.sum()
    assert float(ours.log_z) == pytest.approx(np.log(weight.sum()), abs=1e-7)
    np.testing.assert_allclose(ours.shift, shift, atol=1e-7)
    centred = u - shift
    np.testing.assert_allclose(ours.root @ ours.root.T, (centred.T * weight) @ centred / weight.sum(), atol=1e-7)


def test_wholly_gaussian_fields_need_no_integral() -> None:
    """Conjugate algebra, with a direction that the cavity does not know."""
    noise = np.diag([0.5, 2.0])
    at = np.array([1.0, -1.0])

    def factor(h: Array) -> Array:
        away = h - at
        return -0.5 * away @ jnp.asarray(np.linalg.inv(noise)) @ away - 0.5 * np.log(np.linalg.det(2 * np.pi * noise))

    mean, scale = np.array([0.3, 0.1]), np.array([[2.0, 0.0], [1.0, 0.0]])
    found = Conditional(None)(factor, jnp.asarray(mean), jnp.asarray(scale))
    total = scale @ scale.T + noise
    normal: Any = stats.multivariate_normal
    assert float(found.log_z) == pytest.approx(normal(mean, total).logpdf(at), abs=1e-12)
    gain = scale.T @ np.linalg.inv(total)
    np.testing.assert_allclose(found.shift, gain @ (at - mean), atol=1e-12)
    np.testing.assert_allclose(found.root @ found.root.T, np.eye(2) - gain @ scale, atol=1e-12)


@pytest.mark.parametrize(
    ("factor", "size", "left"),
    [
        (lambda h: scaled(h), 2, "but one"),
        (lambda h: -((h[0] + jnp.exp(h[1]) * h[2]) ** 2), 3, "but one"),
        (lambda h: -((h[0] - 2.0 * h[1]) ** 2) - h[1] ** 2, 2, "all"),
        (lambda h: -jnp.log1p(h[0] ** 2 * jnp.exp(h[1])), 2, None),
        (lambda h: -jnp.exp(h[0]) - jnp.exp(h[1]), 2, None),
    ],
)
def test_degrees_are_read_off_the_program(factor: Any, size: int, left: str | None) -> None:
    """Quadratic given one number; in all of them; in neither."""

    def program(theta: Array) -> list[Array]:
        pieces = [theta[i : i + 1] for i in range(size)]
        return [jnp.reshape(factor([p[0] for p in pieces]), (1,))]

    traced = trace(program, jax.ShapeDtypeStruct((size,), float))
    cut = smallest_cut(traced, traced.outputs[0], 0)
    found = gaussian_but_for(traced, cut, traced.outputs[0])
    # which number it is shows in the moments of every hierarchy (test_ep)
    kind = None if found is None else "all" if found < 0 else "but one"
    assert kind == left or cut.size == 1


def test_the_plan_says_so() -> None:
    """Regression with unknown noise: a field of two, an integral of one."""

    def model(x: Array, y: Array | None = None) -> None:
        w = sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
        noise = sample("noise", dist.HalfNormal(1))
        with numpyro.plate("rows", x.shape[0]):
            sample("y", dist.Normal(x @ w, noise), obs=y)

    x = np.random.default_rng(0).normal(size=(4, 3))
    (factor,) = adfpp.ADF(model).explain(x, y=x[:, 0]).factors
    assert factor.field_size == 2 and factor.rule == "Conditional" and "1-dimensional integral" in factor.why
