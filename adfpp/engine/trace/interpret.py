"""Evaluates the equations of a jaxpr one by one.

This is the only module that calls JAX's primitives, so that differences between versions of JAX are handled here.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from jax.core import ShapedArray
from jax.extend import core as jex

Equation: TypeAlias = jex.JaxprEqn
Variable: TypeAlias = jex.Var
Atom: TypeAlias = jex.Var | jex.Literal
Value: TypeAlias = Any  # of a variable: an array, a NumPy array, a number or a tracer, as JAX's primitives take them
Env: TypeAlias = dict[Variable, Value]


def shape_of(value: Atom) -> tuple[int, ...]:
    """The shape of a variable or literal."""
    if isinstance(value, jex.Literal):
        return np.shape(value.val)
    return cast(ShapedArray, value.aval).shape


def size_of(value: Atom) -> int:
    """The number of elements of a variable or literal."""
    return int(np.prod(shape_of(value)))


def dtype_of(value: Atom) -> Any:
    """The dtype of a variable or literal. It may be one of JAX's dtypes of keys, which NumPy does not have."""
    return cast(ShapedArray, value.aval).dtype


def variables_of(values: Iterable[Atom]) -> list[Variable]:
    """The values that are not literals."""
    return [v for v in values if not isinstance(v, jex.Literal)]


def read(value: Atom, env: Env) -> Value:
    """The value of a variable or literal."""
    return value.val if isinstance(value, jex.Literal) else env[value]


def bind(equation: Equation, operands: Sequence[Value]) -> Sequence[Value]:
    """Applies an equation's primitive to operands."""
    primitive = equation.primitive
    parameters: Any = primitive.get_bind_params(equation.params)
    out: Any = primitive.bind(*operands, **parameters)
    return out if primitive.multiple_results else [out]


def evaluate(equations: Iterable[Equation], env: Env) -> None:
    """Evaluates equations in order, and adds their outputs to ``env``."""
    for equation in equations:
        operands = [read(v, env) for v in equation.invars]
        env.update(zip(equation.outvars, bind(equation, operands), strict=True))


def needed_equations(
    equations: Sequence[Equation], outputs: Iterable[Atom], stop: frozenset[Variable] = frozenset()
) -> list[Equation]:
    """The equations that the outputs need, in order, without those that only the values of ``stop`` need."""
    wanted, kept = set(variables_of(outputs)) - stop, []
    for equation in reversed(equations):
        if any(v in wanted for v in equation.outvars):
            kept.append(equation)
            wanted |= set(variables_of(equation.invars)) - stop
    return kept[::-1]
