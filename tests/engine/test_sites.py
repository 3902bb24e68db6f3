"""Sites: the algebra of taking a fraction out of a Gaussian, against matrices written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from adfpp.engine.linalg import inverse_lower, reversed_cholesky
from adfpp.engine.sites import cavity, message_of, pack, site_of, site_size, unpack
from adfpp.engine.tilt import Tilted

SIZES = [1, 2, 3, 5]


def proper(rng: np.random.Generator, size: int) -> np.ndarray:
    """A positive definite matrix."""
    a = rng.normal(size=(size, size))
    return a @ a.T + 0.5 * np.eye(size)


def setting(size: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """A belief N(mean, C) over a field, and a site that is part of it: (mean, C, slope, precision)."""
    rng = np.random.default_rng(seed)
    covariance = proper(rng, size)
    # less than the belief's own precision in every direction
    precision = 0.6 * np.linalg.inv(covariance + 0.1 * proper(rng, size))
    return rng.normal(size=size), covariance, rng.normal(size=size), precision


@pytest.mark.parametrize("size", SIZES)
def test_a_site_holds_k_and_half_k_squared_numbers(size: int) -> None:
    """k + k(k+1)/2, there and back."""
    _, _, slope, precision = setting(size)
    site = pack(jnp.asarray(slope), jnp.asarray(precision))
    assert site.shape == (size + size * (size + 1) // 2,) == (site_size(size),)
    back = unpack(site, size)
    np.testing.assert_array_equal(back[0], slope)
    np.testing.assert_array_equal(back[1], np.tril(precision) + np.tril(precision, -1).T)


@pytest.mark.parametrize("power", [1.0, 0.4])
@pytest.mark.parametrize("size", SIZES)
def test_cavity_is_the_belief_without_a_fraction_of_the_site(size: int, power: float) -> None:
    """In natural parameters: subtract; and the integral that the evidence needs."""
    mean, covariance, slope, precision = setting(size)
    out = cavity(
        pack(jnp.asarray(slope), jnp.asarray(precision)),
        jnp.asarray(mean),
        jnp.linalg.cholesky(covariance),
        jnp.asarray(power),
        True,
    )
    rest = np.linalg.inv(covariance) - power * precision
    rest_mean = np.linalg.solve(rest, np.linalg.solve(covariance, mean) - power * slope)
    assert bool(out.proper) and bool(out.whole) and float(out.fraction) == power
    np.testing.assert_allclose(out.mean, rest_mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(out.scale @ out.scale.T, np.linalg.inv(rest), rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(np.triu(out.scale, 1), 0.0)
    # ∫ cavity · site^α = N(0; ...) written out, against -evidence and the site's value at the belief's mean
    shifted = rest + power * precision
    total = np.linalg.solve(shifted, rest @ rest_mean + power * slope)
    exponent = 0.5 * total @ shifted @ total - 0.5 * rest_mean @ rest @ rest_mean
    log_integral = 0.5 * (np.linalg.slogdet(rest)[1] - np.linalg.slogdet(shifted)[1]) + exponent
    at_mean = power * (slope @ mean - 0.5 * mean @ precision @ mean)
    assert float(-out.evidence) + at_mean == pytest.approx(log_integral, abs=1e-9)


def test_an_improper_cavity_takes_less() -> None:
    """A site with all of the belief's precision: a smaller fraction, or none where none may be taken."""
    mean, covariance, slope, _ = setting(2)
    site = pack(jnp.asarray(slope), jnp.asarray(np.linalg.inv(covariance)))
    root = jnp.linalg.cholesky(covariance)
    part = cavity(site, jnp.asarray(mean), root, jnp.asarray(1.0), True)
    assert bool(part.proper) and not bool(part.whole) and 0.3 < float(part.fraction) < 1.0
    assert np.linalg.eigvalsh(part.scale @ part.scale.T).min() > 0
    none = cavity(site, jnp.asarray(mean), root, jnp.asarray(1.0), False)
    assert not bool(none.proper)
    np.testing.assert_array_equal(none.mean, mean)
    np.testing.assert_array_equal(none.scale, root)


@pytest.mark.parametrize("size", SIZES)
def test_the_site_that_is_told_makes_the_tilted_moments(size: int) -> None:
    """Cavity times the new site has the moments that the tilt gave, at any fraction."""
    mean, covariance, slope, precision = setting(size)
    rng = np.random.default_rng(1)
    shift, spread = rng.normal(size=size), 0.3 * proper(rng, size)
    root = jnp.linalg.cholesky(covariance)
    for power in (1.0, 0.4):
        out = cavity(
            pack(jnp.asarray(slope), jnp.asarray(precision)), jnp.asarray(mean), root, jnp.asarray(power), True
        )
        tilted = Tilted(jnp.zeros(()), jnp.asarray(shift), jnp.linalg.cholesky(spread), jnp.zeros(()))
        message, clamped = message_of(tilted, out)
        new_slope, new_precision = unpack(site_of(message, jnp.asarray(mean), root), size)
        inverse = np.linalg.inv(np.asarray(out.scale) @ np.asarray(out.scale).T)
        whole = inverse + power * np.asarray(new_precision)
        centre = np.linalg.solve(whole, inverse @ np.asarray(out.mean) + power * np.asarray(new_slope))
        scale = np.asarray(out.scale)
        np.testing.assert_allclose(np.linalg.inv(whole), scale @ spread @ scale.T, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(centre, np.asarray(out.mean) + scale @ shift, rtol=1e-8, atol=1e-9)
        assert not bool(clamped)


def test_precision_that_is_negative_by_the_error_of_the_moments_is_clamped() -> None:
    """Log-concave factors have no negative precision: what is left of one is rounding, and the tilted mean stays."""
    out = cavity(jnp.zeros(2), jnp.zeros(1), jnp.ones((1, 1)), jnp.asarray(1.0), True)
    tilted = Tilted(jnp.zeros(()), jnp.asarray([0.3]), jnp.asarray([[1.0 + 1e-9]]), jnp.asarray(1e-8))
    message, clamped = message_of(tilted, out)
    assert bool(clamped) and float(message.precision[0, 0]) == 0.0 and float(message.slope[0]) == 0.3
    negative, clamped = message_of(tilted._replace(root=jnp.asarray([[1.1]])), out)
    assert not bool(clamped) and float(negative.precision[0, 0]) == pytest.approx(1 / 1.21 - 1)


def test_directions_that_the_belief_does_not_know_have_no_say() -> None:
    """A field of two numbers that are the same one: the site stays finite, and zero where nothing is learned."""
    scale = jnp.asarray([[2.0, 0.0], [1.0, 0.0]])
    out = cavity(jnp.zeros(5), jnp.asarray([1.0, 0.5]), scale, jnp.asarray(1.0), True)
    tilted = Tilted(jnp.zeros(()), jnp.asarray([0.4, 0.0]), jnp.asarray([[0.5, 0.0], [0.0, 1.0]]), jnp.zeros(()))
    message, _ = message_of(tilted, out)
    slope, precision = unpack(site_of(message, jnp.asarray([1.0, 0.5]), scale), 2)
    assert np.isfinite(slope).all() and np.isfinite(precision).all()
    np.testing.assert_allclose(precision, [[3.0 / 4.0, 0.0], [0.0, 0.0]], atol=1e-12)


def test_triangles() -> None:
    """Written out for a few numbers, by LAPACK for more: the same."""
    for size in (1, 2, 3, 4, 5):
        a = proper(np.random.default_rng(size), size)
        upper = np.asarray(reversed_cholesky(jnp.asarray(a)))
        np.testing.assert_allclose(upper @ upper.T, a, rtol=1e-12)
        np.testing.assert_array_equal(np.tril(upper, -1), 0.0)
        lower = np.linalg.cholesky(a)
        np.testing.assert_allclose(inverse_lower(jnp.asarray(lower)), np.linalg.inv(lower), rtol=1e-10, atol=1e-12)
    assert not np.isfinite(np.asarray(reversed_cholesky(jnp.asarray([[1.0, 2.0], [2.0, 1.0]])))).all()


def test_evidence_of_a_row_is_an_integral() -> None:
    """For one probit row, log Z through the cavity algebra is ∫ N(h) Φ(h) dh, whatever stood there before."""
    mean, sd = 0.3, 1.7
    log_z = np.log(integrate.quad(lambda h: stats.norm.pdf(h, mean, sd) * stats.norm.cdf(h), -20, 20)[0])
    precision, slope = 0.2, 0.5
    covariance = 1.0 / (1.0 / sd**2 + precision)  # the belief that holds the site
    centre = covariance * (mean / sd**2 + slope)
    out = jax.jit(cavity, static_argnums=4)(
        jnp.asarray([slope, precision]),
        jnp.asarray([centre]),
        jnp.asarray([[np.sqrt(covariance)]]),
        jnp.asarray(1.0),
        True,
    )
    assert float(out.mean[0]) == pytest.approx(mean) and float(out.scale[0, 0]) == pytest.approx(sd)
    log_site = slope * centre - 0.5 * precision * centre**2
    log_integral = np.log(
        integrate.quad(lambda h: stats.norm.pdf(h, mean, sd) * np.exp(slope * h - 0.5 * precision * h * h), -20, 20)[0]
    )
    assert log_z - log_integral == pytest.approx(log_z + float(out.evidence) - log_site, abs=1e-9)
