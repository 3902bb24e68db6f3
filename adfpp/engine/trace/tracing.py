"""Makes a function of θ a flat list of equations, and finds the degree in θ of each value."""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
from jax.core import Tracer
from jax.extend import core as jex
from jax.typing import ArrayLike

from adfpp.engine.compilation import run_once
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

    def producer(self, value: Atom) -> Equation | None:
        """The equation that computes a value from θ; None for θ, an input or a constant."""
        if isinstance(value, jex.Literal) or self.degree(value) == Degree.CONSTANT or value not in self.producers:
            return None
        return self.equations[self.producers[value]]

    def environment(self, inputs: Sequence[ArrayLike]) -> Env:
        """The values of the constants and of the inputs other than θ."""
        return self.constants | dict(zip(self.inputs, inputs, strict=True))


# Primitives that call a jaxpr, and the parameter that contains the jaxpr.
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}
_CALLS |= {"remat": "jaxpr", "checkpoint": "jaxpr", "remat2": "jaxpr"}
_DERIVATIVE_CALLS = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
_DERIVATIVE_CALLS |= {"custom_vjp_call_jaxpr": "fun_jaxpr"}


def flattened(f: Callable[..., Sequence[ArrayLike]], theta: Shaped, *inputs: Shaped, look_inside: bool = True) -> Trace:
    """Traces ``f(theta, *inputs)``, whose outputs are arrays, to a flat list of primitive equations.

    Args:
        f: A function of arrays that returns a flat sequence of arrays.
        theta: ``(N,)`` array or shape struct.
        inputs: Further arrays or shape structs: the row, the constants.
        look_inside: Whether calls with custom derivatives are inlined, too. Their derivative rules are lost.
    """
    calls = _CALLS | _DERIVATIVE_CALLS if look_inside else _CALLS
    closed = jax.make_jaxpr(f)(theta, *inputs)
    flat = jax.make_jaxpr(lambda *a: _inline(closed.jaxpr, closed.consts, a, calls, {}))(theta, *inputs)
    return _with_degrees(flat)


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


_Done: TypeAlias = dict[Hashable, Sequence[Value]]  # the outputs of equations, and constants


def _inline(
    jaxpr: jex.Jaxpr, consts: Sequence[Value], args: Sequence[Value], calls: dict[str, str], done: _Done
) -> list[Value]:
    """Evaluates a jaxpr with calls inlined, and equal equations once. Under a trace this gives the flat jaxpr.

    Equal parts, such as ``x @ w`` for each value of a discrete latent, or ``rate[arm]`` in two statements, are then one
    value, and one number of the field.

    Args:
        jaxpr: The jaxpr.
        consts: Its constants.
        args: Its arguments.
        calls: The calls that are inlined.
        done: The outputs of the equations so far by primitive, parameters and operands. It keeps all values alive, so
            that their identities are unique.
    """
    consts = [done.setdefault(_content(c), [c])[0] for c in consts]
    env: Env = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, args, strict=True))
    for equation in jaxpr.eqns:
        operands = [read(v, env) for v in equation.invars]
        name = equation.primitive.name
        if calls.get(name) in equation.params:
            called = equation.params[calls[name]]
            inner, inner_consts = (called.jaxpr, called.consts) if hasattr(called, "consts") else (called, ())
            values: Sequence[Value] = _inline(inner, inner_consts, operands, calls, done)
        elif (decided := _decided(equation, operands)) is not None:
            values = [decided]
        else:
            key: Hashable = (equation.primitive, tuple(sorted(equation.params.items())), *map(_content, operands))
            try:
                known = done.get(key)
            except TypeError:  # parameters that cannot be hashed
                key, known = object(), None
            values = done[key] = bind(equation, operands) if known is None else known
        env.update(zip(equation.outvars, values, strict=True))
    return [read(v, env) for v in jaxpr.outvars]


def _decided(equation: Equation, operands: Sequence[Value]) -> Value | None:
    """The output of an equation that follows from known booleans alone, or None.

    A test of the support that is always true then leaves no trace, and a log-density is a plain sum again.
    """
    first = _known(operands[0]) if operands else None
    if first is None or first.dtype != np.bool_ or not first.size:
        return None
    name, params = equation.primitive.name, equation.params
    if name == "select_n":
        alike = len(operands) == 3 and np.all(first == first.flat[0])
        return operands[1 + int(first.flat[0])] if alike else None
    known = [a for a in map(_known, operands) if a is not None]
    if len(known) != len(operands):
        return None
    if name in ("and", "or"):
        return np.logical_and(*known) if name == "and" else np.logical_or(*known)
    if name in ("reduce_and", "reduce_or"):
        return (np.all if name == "reduce_and" else np.any)(first, axis=tuple(params["axes"]))
    if name in ("broadcast_in_dim", "reshape", "squeeze") and np.all(first == first.flat[0]):
        return np.full(shape_of(equation.outvars[0]), first.flat[0])
    return None


def _known(a: Value) -> np.ndarray | None:
    """The numbers of a known array; None for a traced value or a random key."""
    if isinstance(a, Tracer):
        return None
    try:
        return np.asarray(a)
    except TypeError:
        return None


def _content(a: Value) -> Hashable:
    """A key for an operand: its identity if it is a traced value, its numbers if it is a known array."""
    known = _known(a)
    if known is None or known.dtype == object:
        return id(a)
    return str(known.dtype), known.shape, known.tobytes()


def pruned(f: Callable[..., Sequence[ArrayLike]], theta: Shaped, *inputs: Shaped) -> Callable[..., list[Value]]:
    """Makes a function with the outputs of ``f`` that computes nothing else, and so needs no other derivatives.

    The log prior of a model, for example, is computed by a run of the whole model; a likelihood without some mode of
    differentiation must not matter then.

    Args:
        f: A function of arrays that returns a flat sequence of arrays.
        theta: ``(N,)`` array or shape struct.
        inputs: Further arrays or shape structs.
    """
    traced = flattened(f, theta, *inputs, look_inside=False)

    @jax.jit  # so that JAX traces it once, and not at each of its calls
    def outputs(theta: ArrayLike, *inputs: ArrayLike) -> list[Value]:
        env = traced.environment(inputs) | {traced.theta: theta}
        evaluate(traced.equations, env)
        return [read(v, env) for v in traced.outputs]

    return outputs


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


def reads(traced: Trace, output: Atom, inputs: Sequence[Variable]) -> bool:
    """Whether an output may depend on any of these inputs."""
    used = variables_of(v for e in needed_equations(traced.equations, [output]) for v in e.invars)
    return not set(inputs).isdisjoint([*used, *variables_of([output])])


def known_value(traced: Trace, output: Atom) -> np.ndarray | None:
    """The value of an output that depends neither on θ nor on the inputs, or None."""
    if isinstance(output, jex.Literal):
        return np.asarray(output.val)
    if reads(traced, output, [traced.theta, *traced.inputs]):
        return None
    return np.asarray(run_once(lambda: part_of(traced, output)(*([None] * len(traced.inputs)))))


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
