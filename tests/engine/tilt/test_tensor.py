"""Quadrature of two and three numbers, against fine grids and exact answers."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from scipy import integrate, stats

from adfpp.engine.tilt import AUTO
from tests.engine.tilt.common import exact_gaussian, on_a_grid, quadrature_of, spd_root, vector_errors

RULE = quadrature_of(AUTO)


def softmax(h: jax.Array, parameters: jax.Array) -> jax.Array:
    """The log probability of the second class."""
    return h[1] - logsumexp(h)


def spread(h: jax.Array, parameters: jax.Array) -> jax.Array:
    """A normal value whose mean and log sd are the field."""
    return -0.5 * ((parameters[0] - h[0]) * jnp.exp(-h[1])) ** 2 - h[1] - 0.5 * math.log(2 * math.pi)


def gaussian(h: jax.Array, parameters: jax.Array) -> jax.Array:
    """N(value; h, noise noiseᵀ), from the value, the inverse of the noise and the log of its determinant."""
    size = h.shape[0]
    inverse = parameters[size : size + size * size].reshape(size, size)
    gap = inverse @ (parameters[:size] - h)
    return -0.5 * gap @ gap - parameters[-1] - 0.5 * size * math.log(2 * math.pi)


@cache
def rule_of(size: int) -> Callable[..., Any]:
    """The rule on factors of this size, compiled once: ``(which, parameters, mean, scale)``."""
    factors = {2: [spread, gaussian], 3: [softmax, gaussian]}[size]

    def run(which: jax.Array, parameters: jax.Array, mean: jax.Array, scale: jax.Array) -> Any:
        return RULE(lambda h: jax.lax.switch(which, factors, h, parameters), mean, scale)

    compiled = jax.jit(run)

    def call(factor: Any, parameters: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> Any:
        padded = np.concatenate([parameters, np.zeros(size + size * size + 1 - len(parameters))])
        return compiled(factors.index(factor), jnp.asarray(padded), jnp.asarray(mean), jnp.asarray(scale))

    return call


PAIRS = {
    "easy": (np.array([0.1, -0.3]), 0.3 * spd_root(3, 2), 0.5, 1e-6),
    "usual": (np.array([0.0, 0.2]), np.array([[0.8, 0.0], [0.3, 0.5]]), 1.5, 1e-3),
    "surprising": (np.array([0.0, -0.5]), np.array([[0.6, 0.0], [-0.2, 0.6]]), 4.0, 1e-2),
}


@pytest.mark.parametrize("name", PAIRS)
def test_two_fields_against_a_grid(name: str) -> None:
    mean, scale, value, bound = PAIRS[name]

    def grid(h: np.ndarray) -> np.ndarray:
        return -0.5 * ((value - h[:, 0]) * np.exp(-h[:, 1])) ** 2 - h[:, 1] - 0.5 * math.log(2 * math.pi)

    truth = on_a_grid(grid, mean, scale, points=601, reach=12.0)
    out = rule_of(2)(spread, np.array([value]), mean, scale)
    error = vector_errors(out, truth)
    assert error <= 2 * float(out.error) + 1e-9
    assert error < bound


@pytest.mark.slow
@pytest.mark.parametrize(("size", "bound"), [(0.4, 1e-7), (1.5, 1e-4)])
def test_three_fields_against_a_grid(size: float, bound: float) -> None:
    mean, scale = np.array([0.5, -0.2, 0.1]), size * spd_root(4, 3) / 2
    truth = on_a_grid(lambda h: h[:, 1] - np.log(np.exp(h).sum(1)), mean, scale, points=91, reach=9.0)
    out = rule_of(3)(softmax, np.zeros(0), mean, scale)
    error = vector_errors(out, truth)
    assert error <= 2 * float(out.error) + 1e-9
    assert error < bound


@pytest.mark.parametrize("size", [2, 3])
def test_several_fields_with_a_gaussian_factor_are_exact(size: int) -> None:
    value, mean = np.arange(size) - 0.5, np.linspace(-1, 1, size)
    scale, noise = 3 * spd_root(5, size), spd_root(6, size)
    parameters = np.concatenate([value, np.linalg.inv(noise).ravel(), [np.log(np.diag(noise)).sum()]])
    out = rule_of(size)(gaussian, parameters, mean, scale)
    assert vector_errors(out, exact_gaussian(value, mean, scale, noise)) < 1e-8


def test_errors_are_reported_by_the_size_of_the_field() -> None:
    assert RULE.reported(jnp.dtype("float64"), 1) == RULE.report < RULE.reported(jnp.dtype("float64"), 2)


def test_the_factor_is_not_read_far_away() -> None:
    """Beyond the ends of the cavity its values do not matter: a model may be impossible to compute there."""

    def log_one(h: Any) -> Any:
        return -2.0 * jnp.log1p(((h - 1.0) / 0.05) ** 2)

    def wild(h: jax.Array) -> jax.Array:
        return jnp.where(jnp.max(jnp.abs(h)) > 30.0, 1e9, jnp.sum(log_one(h)))

    got = jax.jit(lambda: RULE(wild, jnp.zeros(2), jnp.eye(2)))()

    def weight(h: float) -> float:
        return float(stats.norm.pdf(h) / (1.0 + ((h - 1.0) / 0.05) ** 2) ** 2)

    mass, first = (
        integrate.quad(f, -9.0, 9.0, points=[0.9, 1.0, 1.1], limit=200, epsabs=0.0)[0]
        for f in (weight, lambda h: h * weight(h))
    )
    np.testing.assert_allclose(got.log_z, 2.0 * math.log(mass), atol=0.01)  # it reports an error of 0.1
    np.testing.assert_allclose(got.shift, [first / mass] * 2, atol=0.01)
