"""Traces a function of θ, and rewrites the trace so that its fields become as small as the model allows.

Each rewriting gives the same values:

* A selection of the row, such as ``rate[arm]``, is made before the operations on the whole array, not after them. With
  ``rate = exp(u)`` a row then reads one number of u, and ``(L @ z.T).T[group]`` reads one column of z.
* Products, quotients, powers and roots of exponentials become exponentials of sums, so that ``tau * lambda``, two
  positive latents, is a function of one affine number.
* The logarithm of an exponential becomes its exponent.
* A sum with 0 and a product with 1 become the other operand, so that they are no numbers of their own.
* The solution of a small triangular system, as in the density of a multivariate normal distribution, is written out. A
  library call for each point of an integral takes much longer. On a machine with two cores two of them may wait for
  each other for ever: each is a thread of JAX's pool and waits for another one.
* A test whether an affine value is finite is true, because θ is. Otherwise a test of the support looks like a kink of
  the factor.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.typing import ArrayLike

from adfpp.engine.linalg import small_triangular_solve
from adfpp.engine.trace.degree import Degree
from adfpp.engine.trace.interpret import Atom, Env, Equation, Value, bind, dtype_of, read, shape_of
from adfpp.engine.trace.selecting import SELECTIONS, Selecting, movable
from adfpp.engine.trace.touch import MOVES
from adfpp.engine.trace.tracing import Shaped, Trace, flattened

_POWERS = frozenset("sqrt rsqrt square integer_pow".split())
_LARGEST_SYSTEM = 6  # that is written out: 60 equations
_MOST_PASSES = 4  # a rewriting may make another one possible; models need one or two passes


def trace(f: Callable[..., Sequence[ArrayLike]], theta: Shaped, *inputs: Shaped, look_inside: bool = True) -> Trace:
    """Traces ``f(theta, *inputs)``, whose outputs are arrays, to a flat list of rewritten equations.

    Args:
        f: A function of arrays that returns a flat sequence of arrays.
        theta: ``(N,)`` array or shape struct.
        inputs: Further arrays or shape structs: the row, the constants.
        look_inside: Whether calls with custom derivatives are inlined, too. This may lead to a smaller field, but
            their derivative rules are lost.
    """
    traced = flattened(f, theta, *inputs, look_inside=look_inside)
    for i in range(_MOST_PASSES):
        rewritten = _rewritten(traced, selections=i == 0)  # the first pass moves selections as far as they can go
        if rewritten is None:
            break
        traced = flattened(rewritten, theta, *inputs, look_inside=look_inside)
    return traced


def _rewritten(traced: Trace, selections: bool) -> Callable[..., list[Value]] | None:
    """Makes a function of θ and the inputs with the rewritten program; None if there is nothing to rewrite."""
    allowed = [e for e in traced.equations if selections or e.primitive.name not in SELECTIONS]
    chosen = {e.outvars[0] for e in allowed if _replaceable(traced, e)}
    if not chosen:
        return None

    def outputs(theta: ArrayLike, *inputs: ArrayLike) -> list[Value]:
        rewriting = _Rewriting(traced, traced.environment(inputs) | {traced.theta: theta})
        for equation in traced.equations:
            if equation.outvars and equation.outvars[0] in chosen:
                rewriting.env[equation.outvars[0]] = rewriting.replaced(equation)
            else:
                operands = [read(v, rewriting.env) for v in equation.invars]
                rewriting.env.update(zip(equation.outvars, bind(equation, operands), strict=True))
        return [read(v, rewriting.env) for v in traced.outputs]

    return outputs


def _replaceable(traced: Trace, equation: Equation) -> bool:
    """Whether an equation is rewritten."""
    name = equation.primitive.name
    if len(equation.outvars) != 1:
        return False
    if _neutral(equation):
        return traced.degree(equation.outvars[0]) != Degree.CONSTANT
    if traced.degree(equation.outvars[0]) != Degree.NONLINEAR:
        return False
    if name in ("eq", "ne"):
        return _always_true(traced, equation)
    if name == "triangular_solve":
        return shape_of(equation.invars[0])[-1] <= _LARGEST_SYSTEM
    if name == "log":
        return _is_exponential(traced, equation.invars[0], most=Degree.NONLINEAR)
    if name in SELECTIONS:
        return movable(traced, equation)
    if name in ("mul", "div"):
        return all(_is_exponential(traced, v) for v in equation.invars)
    return name in _POWERS and _is_exponential(traced, equation.invars[0])


def _neutral(equation: Equation) -> bool:
    """Whether an equation adds 0 to an operand, or multiplies it by 1."""
    neutral = {"add": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0}.get(equation.primitive.name)
    if neutral is None:
        return False
    first, second = _with_literal_last(equation)
    same = not isinstance(first, jex.Literal) and shape_of(first) == shape_of(equation.outvars[0])
    return same and isinstance(second, jex.Literal) and bool(np.all(second.val == neutral))


def _with_literal_last(equation: Equation) -> Sequence[Atom]:
    """The two operands, with a literal that is the first one of a sum or product last."""
    first, second = equation.invars
    turned = equation.primitive.name in ("add", "mul") and isinstance(first, jex.Literal)
    return (second, first) if turned else (first, second)


def _always_true(traced: Trace, equation: Equation) -> bool:
    """Whether an equation tests if an affine value is finite (or not NaN), which is always true for θ."""
    a, b = equation.invars
    if isinstance(a, jex.Literal) or traced.degree(a) != Degree.AFFINE:
        return False
    if equation.primitive.name == "eq":
        return a is b
    return isinstance(b, jex.Literal) and bool(np.all(np.isinf(b.val)))


def _is_exponential(traced: Trace, value: Atom, most: Degree = Degree.AFFINE) -> bool:
    """Whether a value is an exponential times a constant, with its elements moved or not.

    Args:
        traced: The trace.
        value: The value.
        most: The highest degree of the exponent.
    """
    equation = traced.producer(value)
    if equation is None:
        return False
    name, first = equation.primitive.name, equation.invars[0]
    if name == "exp":
        return traced.degree(first) <= most
    if name in ("mul", "div"):
        varying, other = _factors(traced, equation)
        return traced.degree(other) == Degree.CONSTANT and _is_exponential(traced, varying, most)
    return (name in MOVES or name in SELECTIONS) and _is_exponential(traced, first, most)


def _factors(traced: Trace, equation: Equation) -> Sequence[Atom]:
    """The operands of a product, with a constant as the second one, or those of a quotient."""
    first, second = equation.invars
    turned = equation.primitive.name == "mul" and traced.degree(first) == Degree.CONSTANT
    return (second, first) if turned else (first, second)


class _Rewriting:
    """Evaluates the equations of a trace with some of them replaced.

    Attributes:
        traced: The trace.
        env: The values of the variables so far.
    """

    def __init__(self, traced: Trace, env: Env) -> None:
        self.traced, self.env = traced, env
        self._selecting = Selecting(traced, env)

    def replaced(self, equation: Equation) -> Value:
        """The output of an equation that is rewritten."""
        if _neutral(equation):
            return read(_with_literal_last(equation)[0], self.env)
        if equation.primitive.name in ("eq", "ne"):
            return np.ones(shape_of(equation.outvars[0]), bool)
        if equation.primitive.name == "triangular_solve":
            params = {name: value for name, value in equation.params.items() if name != "conjugate_a"}  # all is real
            return small_triangular_solve(*(jnp.asarray(read(v, self.env)) for v in equation.invars), **params)
        if equation.primitive.name in SELECTIONS:
            return self._selecting.selection(equation)
        return self._of_exponentials(equation)

    # ------------------------------------------------------------------------------------------ exponentials

    def _exponent(self, value: Atom) -> tuple[Value | None, Value]:
        """The constant (None for 1) and the exponent of an exponential."""
        equation = self.traced.producer(value)
        assert equation is not None
        name = equation.primitive.name
        first, *rest = _factors(self.traced, equation) if name in ("mul", "div") else equation.invars
        if name == "exp":
            return None, read(first, self.env)
        constant, exponent = self._exponent(first)
        others = [read(v, self.env) for v in rest]
        if name in ("mul", "div"):
            one = jnp.ones(shape_of(value), dtype_of(value)) if constant is None else constant
            exponent = jnp.broadcast_to(exponent, shape_of(value))  # the constant may be an array
            return (one * others[0] if name == "mul" else one / others[0]), exponent
        moved = None if constant is None else bind(equation, [constant, *others])[0]
        return moved, bind(equation, [exponent, *others])[0]

    def _of_exponentials(self, equation: Equation) -> Value:
        name, parts = equation.primitive.name, [self._exponent(v) for v in equation.invars]
        constant, exponent = parts[0]
        if name == "log":
            return exponent if constant is None else jnp.log(constant) + exponent
        if name in ("mul", "div"):
            other, its_exponent = parts[1]
            exponent = exponent + its_exponent if name == "mul" else exponent - its_exponent
            if other is not None:
                constant = jnp.ones_like(other) if constant is None else constant
                constant = constant * other if name == "mul" else constant / other
        else:
            power = {"sqrt": 0.5, "rsqrt": -0.5, "square": 2}.get(name) or equation.params["y"]
            exponent = power * exponent
            constant = None if constant is None else bind(equation, [constant])[0]
        return jnp.exp(exponent) if constant is None else jnp.exp(exponent) * constant
