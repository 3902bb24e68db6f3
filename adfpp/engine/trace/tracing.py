"""Traces a function of θ to a flat list of equations, and finds the degree in θ of each value."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
from jax.extend import core as jex
from jax.typing import ArrayLike

from adfpp.engine.trace.degree import Degree, degree_of, output_degrees
from adfpp.engine.trace.interpret import (
    Atom,
    Env,
    Equation,
    Value,
    Variable,
    bind,
    evaluate,
    needed_equations,
    read,
    shape_of,
    size_of,
    variables_of,
)

Shaped: TypeAlias = ArrayLike | jax.ShapeDtypeStruct


class Trace(NamedTuple):
    """A flat, pruned jaxpr of ``f(theta, *inputs)`` with every value's degree in θ.

    Attributes:
        equations: The equations that the outputs need, in order.
        constants: The values of constants.
        theta: The variable of θ.
        inputs: The variables of the other inputs.
        outputs: The outputs.
        degrees: The degree of every variable.
        producers: For each variable, the place in ``equations`` of the equation that computes it.
    """

    equations: tuple[Equation, ...]
    constants: Env
    theta: Variable
    inputs: tuple[Variable, ...]
    outputs: tuple[Atom, ...]
    degrees: dict[Variable, Degree]
    producers: dict[Variable, int]

    @property
    def size(self) -> int:
        """Length of θ."""
        return shape_of(self.theta)[0]

    def degree(self, value: Atom) -> Degree:
        """How a value depends on θ."""
        return degree_of(value, self.degrees)

    def environment(self, inputs: Sequence[ArrayLike]) -> Env:
        """The values of the constants and of the inputs other than θ."""
        return self.constants | dict(zip(self.inputs, inputs, strict=True))


# Primitives that call a jaxpr, and the parameter that contains the jaxpr.
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}
_CALLS |= {"remat": "jaxpr", "checkpoint": "jaxpr", "remat2": "jaxpr"}
_DERIVATIVE_CALLS = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
_DERIVATIVE_CALLS |= {"custom_vjp_call_jaxpr": "fun_jaxpr"}


def trace(f: Callable[..., Sequence[ArrayLike]], theta: Shaped, *inputs: Shaped, look_inside: bool = True) -> Trace:
    """Traces ``f(theta, *inputs)``, whose outputs are arrays, to a flat list of primitive equations.

    Args:
        f: A function of arrays that returns a flat sequence of arrays.
        theta: ``(N,)`` array or shape struct.
        inputs: Further arrays or shape structs: the row, the constants.
        look_inside: Whether calls with custom derivatives are inlined, too. This may lead to a smaller field, but
            their derivative rules are lost.
    """
    calls = _CALLS | _DERIVATIVE_CALLS if look_inside else _CALLS
    closed = jax.make_jaxpr(f)(theta, *inputs)
    flat = jax.make_jaxpr(lambda *a: _inline(closed.jaxpr, closed.consts, a, calls))(theta, *inputs)
    traced = _with_degrees(flat)
    true = [e for e in traced.equations if _always_true(e, traced)]
    if true:
        traced = _with_degrees(jax.make_jaxpr(lambda *a: _evaluated_with_true(flat, true, a))(theta, *inputs))
    return traced


def _with_degrees(flat: jex.ClosedJaxpr) -> Trace:
    jaxpr = flat.jaxpr
    theta, *inputs = jaxpr.invars
    equations = needed_equations(jaxpr.eqns, jaxpr.outvars)
    degrees = dict.fromkeys([*jaxpr.constvars, *inputs], Degree.CONSTANT) | {theta: Degree.AFFINE}
    producers: dict[Variable, int] = {}
    for i, equation in enumerate(equations):
        operands = [degree_of(v, degrees) for v in equation.invars]
        degrees.update(zip(equation.outvars, output_degrees(equation, operands), strict=True))
        producers.update(dict.fromkeys(equation.outvars, i))
    constants = dict(zip(jaxpr.constvars, flat.consts, strict=True))
    return Trace(tuple(equations), constants, theta, tuple(inputs), tuple(jaxpr.outvars), degrees, producers)


def _always_true(equation: Equation, traced: Trace) -> bool:
    """Whether an equation tests if an affine value is finite (or not NaN).

    This is always true for θ. Without this rule, such a test of the support would look like a kink of the factor.
    """
    if equation.primitive.name not in ("eq", "ne"):
        return False
    a, b = equation.invars
    if isinstance(a, jex.Literal) or traced.degree(a) != Degree.AFFINE:
        return False
    if equation.primitive.name == "eq":
        return a is b
    return isinstance(b, jex.Literal) and bool(np.all(np.isinf(b.val)))


def _evaluated_with_true(flat: jex.ClosedJaxpr, true: Sequence[Equation], args: Sequence[Value]) -> list[Value]:
    """Evaluates a jaxpr, with True as the output of some equations."""
    jaxpr = flat.jaxpr
    env: Env = dict(zip(jaxpr.constvars, flat.consts, strict=True)) | dict(zip(jaxpr.invars, args, strict=True))
    outputs = {e.outvars[0] for e in true}
    for equation in jaxpr.eqns:
        if equation.outvars and equation.outvars[0] in outputs:
            env[equation.outvars[0]] = np.ones(shape_of(equation.outvars[0]), bool)
        else:
            evaluate([equation], env)
    return [read(v, env) for v in jaxpr.outvars]


def _inline(jaxpr: jex.Jaxpr, consts: Sequence[Value], args: Sequence[Value], calls: dict[str, str]) -> list[Value]:
    """Evaluates a jaxpr with calls inlined and log(exp(u)) replaced by u. Under a trace this gives the flat jaxpr."""
    exponents: Env = {}  # a positive latent is exp(u), and its logarithm in the model is affine in u
    env: Env = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, args, strict=True))
    for equation in jaxpr.eqns:
        operands = [read(v, env) for v in equation.invars]
        name, first = equation.primitive.name, equation.invars[0] if equation.invars else None
        if calls.get(name) in equation.params:
            called = equation.params[calls[name]]
            inner, inner_consts = (called.jaxpr, called.consts) if hasattr(called, "consts") else (called, ())
            values: Sequence[Value] = _inline(inner, inner_consts, operands, calls)
        elif name == "log" and isinstance(first, jex.Var) and first in exponents:
            values = [exponents[first]]
        else:
            values = bind(equation, operands)
        if name == "exp":
            exponents[equation.outvars[0]] = operands[0]
        env.update(zip(equation.outvars, values, strict=True))
    return [read(v, env) for v in jaxpr.outvars]


# ---------------------------------------------------------------------------------------- values without θ


def part_of(traced: Trace, output: Atom) -> Callable[..., jax.Array | np.ndarray]:
    """Makes a function of the inputs alone for an output that does not depend on θ."""
    equations = needed_equations(traced.equations, [output])

    def part(*inputs: ArrayLike) -> jax.Array | np.ndarray:
        if isinstance(output, jex.Literal):
            return np.asarray(output.val)
        env = traced.environment(inputs)
        evaluate(equations, env)
        return env[output]

    return part


def known_value(traced: Trace, output: Atom) -> np.ndarray | None:
    """The value of an output that depends neither on θ nor on the inputs, or None."""
    if isinstance(output, jex.Literal):
        return np.asarray(output.val)
    used = {output, *(v for e in needed_equations(traced.equations, [output]) for v in variables_of(e.invars))}
    if used & {traced.theta, *traced.inputs}:
        return None
    with jax.ensure_compile_time_eval():
        return np.asarray(part_of(traced, output)(*([None] * len(traced.inputs))))


# Primitives that return a single number unchanged.
_WRAPPERS = frozenset("reshape broadcast_in_dim squeeze expand_dims convert_element_type copy".split())


def summands(traced: Trace, output: Atom) -> list[Atom]:
    """Finds the values whose elements add up to an output of one number."""
    if isinstance(output, jex.Literal) or output not in traced.producers:
        return [output]
    equation = traced.equations[traced.producers[output]]
    single = all(size_of(v) == 1 for v in equation.invars)
    if equation.primitive.name in _WRAPPERS and single:
        return summands(traced, equation.invars[0])
    if equation.primitive.name in ("add", "add_any") and single:
        return [v for operand in equation.invars for v in summands(traced, operand)]
    if equation.primitive.name == "reduce_sum":
        return [equation.invars[0]]
    return [output]
