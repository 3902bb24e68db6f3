"""How a value depends on θ: it is constant, affine or nonlinear; and the joint degree of a polynomial.

To support another of JAX's primitives, add its name to one of the sets below. A primitive that is in none of them
counts as nonlinear: that may cost a larger field, but it never gives a wrong answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

import jax.numpy as jnp
from jax.extend import core as jex

from adfpp.engine.trace.interpret import Atom, Equation, Variable, dtype_of


class Degree(IntEnum):
    """How a value depends on θ."""

    CONSTANT = 0
    AFFINE = 1
    NONLINEAR = 2


# Linear in all of their operands together.
LINEAR = frozenset(
    "neg add sub add_any reshape transpose broadcast_in_dim squeeze expand_dims slice rev reduce_sum cumsum copy "
    "copy_p real imag concatenate stack pad convert_element_type reduce_window_sum split sharding_constraint "
    "optimization_barrier reduce_precision".split()
)
# Linear in each of their two operands.
BILINEAR = frozenset(["mul", "dot_general", "conv_general_dilated"])
# Linear, as long as the operands from this place on (the indices) are constant.
INDEXED = {"gather": 1, "dynamic_slice": 1, "dynamic_update_slice": 2}


def degree_of(value: Atom, degrees: Mapping[Variable, Degree]) -> Degree:
    """The degree of a value; a literal is constant."""
    return Degree.CONSTANT if isinstance(value, jex.Literal) else degrees[value]


def output_degrees(equation: Equation, operands: Sequence[Degree]) -> list[Degree]:
    """The degrees of an equation's outputs, from those of its operands."""
    degree = _result_degree(equation, operands)
    # An integer or a boolean that depends on θ jumps, so it is never affine.
    jump = Degree.NONLINEAR if degree != Degree.CONSTANT else Degree.CONSTANT
    return [degree if _is_real(v) else jump for v in equation.outvars]


def _result_degree(equation: Equation, operands: Sequence[Degree]) -> Degree:
    """The degree of an equation's result as a real number."""
    worst = max(operands, default=Degree.CONSTANT)
    if worst != Degree.AFFINE:
        return worst
    name = equation.primitive.name
    varying = sum(d == Degree.AFFINE for d in operands)
    if name in LINEAR:
        affine = True
    elif name in BILINEAR:
        affine = varying == 1
    elif name in ("div", "triangular_solve"):
        numerator = 0 if name == "div" else 1
        affine = varying == 1 and operands[numerator] == Degree.AFFINE
    elif name == "select_n":
        affine = operands[0] == Degree.CONSTANT
    elif name in INDEXED:
        affine = all(d == Degree.CONSTANT for d in operands[INDEXED[name] :])
    elif name in ("scatter", "scatter-add", "scatter_add"):
        affine = operands[1] == Degree.CONSTANT
    elif name == "integer_pow":
        affine = equation.params["y"] == 1
    else:
        affine = False
    return Degree.AFFINE if affine else Degree.NONLINEAR


BEYOND = 3  # any degree above 2, or not a polynomial


def polynomial_degree(equations: Sequence[Equation], varying: Iterable[Variable], output: Atom) -> int:
    """The joint degree of an output as a polynomial in some values, with all others fixed; at most ``BEYOND``.

    Args:
        equations: The equations between the values and the output, in order.
        varying: The values.
        output: The output.
    """
    degrees = dict.fromkeys(varying, 1)
    for equation in equations:
        operands = [0 if isinstance(v, jex.Literal) else degrees.get(v, 0) for v in equation.invars]
        if not any(operands):
            continue
        degree = min(_result_polynomial(equation, operands), BEYOND)
        for v in equation.outvars:
            degrees[v] = degree if _is_real(v) else BEYOND
    return 0 if isinstance(output, jex.Literal) else degrees.get(output, 0)


def _result_polynomial(equation: Equation, operands: Sequence[int]) -> int:
    """The degree of an equation's result, from the degrees of its operands, of which at least one is above 0."""
    name = equation.primitive.name
    if name in LINEAR:
        return max(operands)
    if name in BILINEAR:
        return sum(operands)
    if name == "div":
        return operands[0] if operands[1] == 0 else BEYOND
    if name == "select_n":
        return max(operands) if operands[0] == 0 else BEYOND
    if name == "triangular_solve":
        return operands[1] if operands[0] == 0 else BEYOND
    if name in INDEXED:
        return max(operands) if not any(operands[INDEXED[name] :]) else BEYOND
    if name == "square":
        return 2 * operands[0]
    if name == "integer_pow" and equation.params["y"] > 0:
        return equation.params["y"] * operands[0]
    return BEYOND


def _is_real(value: Variable) -> bool:
    return bool(jnp.issubdtype(dtype_of(value), jnp.floating))
