"""Landmarks of factors of one number: where residuals, rates and comparisons have their zeros."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from adfpp.engine.trace import Tail, scalar_factor, size_of, smallest_cut, trace
from tests.engine.trace.programs import ROW, THETA, N


@pytest.mark.parametrize(
    ("f", "at", "centres"),
    [
        (lambda h: -0.5 * ((h - 2.0) / 0.1) ** 2, [2.0], 1),
        (lambda h: -jnp.abs(3.0 * h + 6.0), [-2.0], 0),
        (lambda h: -jnp.maximum(h, 1.5), [1.5], 0),
        (lambda h: -jax.lax.clamp(-1.0, h, 4.0), [-1.0, 4.0], 0),
        (lambda h: 2.0 * h - jnp.exp(h - 1.0), [1.0], 0),
        (lambda h: -(jnp.abs(h) + (h - 5.0) ** 2), [5.0, 0.0], 1),
        (lambda h: jnp.where(h > 0.25, 0.0, -1.0), [0.25], 0),
        (lambda h: 2.0 * h, [], 0),
        (lambda h: dist.StudentT(3.0, h, 0.1).log_prob(0.7), [0.7], 1),
    ],
)
def test_landmarks_of_plain_functions(f: Any, at: list[float], centres: int) -> None:
    """Squares come first, and are counted."""
    _, landmarks = scalar_factor(f, jnp.float64)
    np.testing.assert_allclose(landmarks.at, at)
    assert landmarks.centres == centres


def test_each_element_has_landmarks_of_its_own() -> None:
    """Several elements behind one program: each at the place that its observation gives."""

    def f(theta: Any, row: Any) -> list[Any]:
        return [-jnp.abs(theta[:2] * 2.0 - row) / 0.5]

    program = trace(f, THETA, ROW)
    (output,) = program.outputs
    cuts = [smallest_cut(program, output, e) for e in range(size_of(output))]
    assert all(cut.size == 1 for cut in cuts) and N == 6
    prepared = Tail(program, cuts, output, [0, 1])(np.array([3.0, -4.0]))
    # the field is either 2 θ or 2 θ - row: its landmark is where the factor has its peak
    for e in range(2):
        (at,) = prepared.landmarks(jnp.float64, e).at
        assert float(prepared.log_factor(jnp.array([at]), e)) == 0.0
