"""Common parts of the quadrature rules: Kronrod nodes, error estimates, and a hint to the compiler."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial.legendre import legder, leggauss, legroots, legval, legvander

# Rounding error of a likelihood, in eps: its normalising constants may be larger than the sum in which they cancel.
LOST = 160.0


@cache
def kronrod(n: int = 10) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "4 m"]]:
    """The Kronrod rule of 2n + 1 points on [-1, 1]: its nodes, and four rows of weights.

    The rows give the Kronrod rule, the n-point Gauss rule inside it, and the values at -1 and at 1 of the polynomial
    through all nodes. The Kronrod nodes beside the Gauss ones are the zeros of the Stieltjes polynomial E of degree
    n + 1 with ∫ P_n E P_j = 0 for j ≤ n; the weights follow from the moments of Legendre polynomials.
    """
    gauss_x, gauss_w = leggauss(n)
    fine_x, fine_w = leggauss(4 * n)
    polynomials = legvander(fine_x, n + 1)
    weight = fine_w * polynomials[:, n]
    js = np.arange((n + 1) % 2, n + 1, 2)
    tested = polynomials[:, 1 : n + 1 : 2] * weight[:, None]  # the other products are 0 by symmetry
    rows, right = tested.T @ polynomials[:, js], -tested.T @ polynomials[:, n + 1]
    stieltjes = np.zeros(n + 2)
    stieltjes[n + 1] = 1.0
    stieltjes[js] = np.linalg.lstsq(rows, right, rcond=None)[0]
    extra_x = np.sort(legroots(stieltjes).real)
    for _ in range(3):
        extra_x = extra_x - legval(extra_x, stieltjes) / legval(extra_x, legder(stieltjes))
    x = np.sort(np.concatenate([gauss_x, extra_x]))
    x = 0.5 * (x - x[::-1])
    inverse = legendre(x)
    inner = np.zeros(len(x))
    inner[1::2] = gauss_w
    signs = (-1.0) ** np.arange(len(x))
    return x, np.stack([2.0 * inverse[0], inner, signs @ inverse, np.ones(len(x)) @ inverse])


def legendre(x: Float[np.ndarray, " m"]) -> Float[np.ndarray, "m m"]:
    """The matrix that turns values at m nodes into the Legendre coefficients of the polynomial through them."""
    return np.linalg.inv(legvander(x, len(x) - 1))


def tail_error(middle: Float[Array, "*n"], last: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Estimates the sum of the coefficients beyond a rule.

    The coefficients are continued as a geometric series, from the rule's length to twice that length, where aliasing
    starts, and summed. The coefficients of a smooth factor decrease at least about as fast. Those of a factor with a
    kink decrease like a power, so that their ratio, and with it this estimate, is large.

    Args:
        middle: The largest coefficient around the middle of the rule.
        last: The largest coefficient at its end, 8 degrees on.
    """
    last = jnp.maximum(last - 8.0 * float(jnp.finfo(last.dtype).eps), 0.0)  # smaller coefficients are rounding errors
    ratio = jnp.minimum(last / jnp.maximum(middle, float(jnp.finfo(last.dtype).tiny)), 1.0)
    per_degree = jnp.sqrt(jnp.sqrt(jnp.sqrt(ratio)))
    return last * ratio * ratio / jnp.maximum(1.0 - per_degree, 1e-3)


def once(a: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Keeps the compiler from evaluating an array again for each of its uses."""
    return jax.lax.optimization_barrier(a)
