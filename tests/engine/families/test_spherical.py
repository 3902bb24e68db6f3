"""The spherical family against the scalar BOnA (10)-(11), and under rotations."""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfc

import adfpp
from tests.engine.families.common import step


def test_spherical_family_is_the_scalar_bona() -> None:
    """The step likelihood with the spherical family gives BOnA's (10)-(11), for inputs with ξ·ξ = N as it assumes."""
    rng = np.random.default_rng(4)
    size, n = 7, 40
    xi = rng.normal(size=(n, size))
    xi *= np.sqrt(size) / np.linalg.norm(xi, axis=1, keepdims=True)
    sigma = np.sign(xi @ rng.normal(size=size))
    omega, zeta = np.zeros(size), 1.0
    adf = adfpp.ADF(step, family="spherical")
    labels = (sigma > 0).astype(int)
    x = xi / np.sqrt(size)
    state, info = adf.update(adf.init(jax.random.key(0), x, y=labels), x, y=labels)
    for row, s in zip(xi, sigma, strict=True):
        tau = s * omega @ row / np.sqrt(size)
        u = -tau / np.sqrt(2 * zeta)
        f = np.exp(-(u**2)) / erfc(u)
        omega = omega + s * row * np.sqrt(2 * zeta / (np.pi * size)) * f
        zeta = zeta - zeta * f / size * (tau * np.sqrt(2 / (np.pi * zeta)) + 2 / np.pi * f)
    np.testing.assert_allclose(state.belief.mean, omega, atol=1e-10)
    np.testing.assert_allclose(state.belief.scale**2, zeta, rtol=1e-10)
    assert (np.asarray(info.status) == adfpp.Status.OK).all()


ROTATED = [adfpp.ADF(step, family=family) for family in ("full", "spherical")]


@given(st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_rotating_inputs_rotates_the_posterior(seed: int) -> None:
    """The full and spherical families know no preferred axes."""
    rng = np.random.default_rng(seed)
    x, labels = rng.normal(size=(8, 5)), rng.integers(0, 2, 8)
    rotation = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    for adf in ROTATED:
        plain, _ = adf.update(adf.init(jax.random.key(0), x, y=labels, noise=1.0), x, y=labels, noise=1.0)
        turned, _ = adf.update(adf.init(jax.random.key(0), x, y=labels, noise=1.0), x @ rotation.T, y=labels, noise=1.0)
        np.testing.assert_allclose(turned.belief.mean, rotation @ plain.belief.mean, atol=1e-10)
