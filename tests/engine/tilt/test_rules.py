"""What the quadrature rules share: Kronrod's nodes and the estimate of what a rule leaves out."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from adfpp.engine.tilt.rules import kronrod, tail_error


@pytest.mark.parametrize("n", [3, 5, 10])
def test_kronrod_rules_are_exact_for_polynomials(n: int) -> None:
    """Up to degree 3n + 1, and the Gauss rule inside up to 2n - 1."""
    x, (fine, coarse, first, last) = kronrod(n)
    assert x.shape == (2 * n + 1,) and np.all(np.diff(x) > 0) and -1 < x[0]
    for degree in range(3 * n + 2):
        exact = 2.0 / (degree + 1) if degree % 2 == 0 else 0.0
        assert fine @ x**degree == pytest.approx(exact, abs=1e-13)
        if degree < 2 * n:
            assert coarse @ x**degree == pytest.approx(exact, abs=1e-13)
        if degree <= 2 * n:
            ends = (-1.0) ** degree, 1.0
            assert (first @ x**degree, last @ x**degree) == pytest.approx(ends, abs=1e-9)


def test_the_published_nodes_of_the_21_point_rule() -> None:
    """QUADPACK's qk21: the outermost node and its weight."""
    x, weights = kronrod(10)
    assert x[-1] == pytest.approx(0.995657163025808080735527280689003, abs=1e-15)
    assert weights[0, -1] == pytest.approx(0.011694638867371874278064396062192, abs=1e-15)


def test_a_geometric_tail_is_summed() -> None:
    """Coefficients r^j from j = 20 to infinity: the sum from twice the rule's length is what aliasing leaves."""
    for r in (0.5, 0.8, 0.9):
        middle, last = r**8, r**16
        # from the end of the rule, 8 + 8 degrees further on: last r^16 / (1 - r)
        assert float(tail_error(jnp.asarray(middle), jnp.asarray(last))) == pytest.approx(
            last * r**16 / (1 - r), rel=1e-6
        )


def test_coefficients_that_do_not_fall_are_no_small_error() -> None:
    assert float(tail_error(jnp.asarray(1e-3), jnp.asarray(1e-3))) == pytest.approx(1.0)
    assert float(tail_error(jnp.asarray(1e-3), jnp.asarray(math.ulp(1.0)))) == 0.0
