"""Splits a row's program at a cut: the affine part before it, and the part behind it, a function of the field alone.

Elements of an observation that are cut through the same values share both parts, so that these are compiled once.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Int

from adfpp.engine.tilt.base import Index
from adfpp.engine.tilt.landmarks import Landmarks
from adfpp.engine.trace.cut import Cut
from adfpp.engine.trace.interpret import (
    Atom,
    Env,
    Equation,
    Value,
    Variable,
    bind,
    dtype_of,
    evaluate,
    needed_equations,
    read,
    shape_of,
    size_of,
    variables_of,
)
from adfpp.engine.trace.invariance import Reduced
from adfpp.engine.trace.landmarks import find_crossings
from adfpp.engine.trace.rewriting import trace
from adfpp.engine.trace.touch import ELEMENTWISE
from adfpp.engine.trace.tracing import Trace

Fields = tuple[Float[Array, "E k N"], Float[Array, "E k"]]

# Primitives for which one element of the output can be computed from one number instead of the whole operand.
_STRETCHES = frozenset("broadcast_in_dim reshape squeeze copy".split())


def affine_part(trace: Trace, cuts: Sequence[Cut]) -> Callable[..., Fields]:
    """Makes a function for the fields of several cuts through the same values.

    Returns:
        ``f(theta, *inputs) -> (A, h)``: the field of cut e at ``theta + d`` is ``h[e] + A[e] @ d``. A does not depend
        on theta.
    """
    values = cuts[0].values
    equations = needed_equations(trace.equations, values, frozenset([trace.theta]))
    positions = _positions(cuts)

    def fields(theta: Float[Array, " N"], *inputs: ArrayLike) -> Float[Array, "E k"]:
        env = trace.environment(inputs) | {trace.theta: theta}
        evaluate(equations, env)
        flat = [jnp.ravel(env[v]).astype(theta.dtype) for v in values]
        if len(cuts) == 1:
            flat = [f if len(i) == f.size else f[i] for f, i in zip(flat, cuts[0].indices, strict=True)]
            return (flat[0] if len(flat) == 1 else jnp.concatenate(flat))[None]
        return jnp.concatenate(flat)[positions]

    def matrices(theta: Float[Array, " N"], *inputs: ArrayLike) -> Fields:
        value, pull = jax.vjp(lambda t: fields(t, *inputs), theta)
        if value.size == 1:
            (rows,) = pull(jnp.ones_like(value))
        else:
            (rows,) = jax.vmap(pull)(jnp.eye(value.size, dtype=value.dtype).reshape((value.size, *value.shape)))
        return rows.reshape(value.shape + theta.shape), value

    return matrices


def behind_alone(trace: Trace, values: Sequence[Variable], output: Atom) -> bool:
    """Whether an output depends on θ through these values alone."""
    behind = needed_equations(trace.equations, [output], frozenset(values))
    return output is not trace.theta and all(v is not trace.theta for e in behind for v in e.invars)


def _positions(cuts: Sequence[Cut]) -> Int[np.ndarray, "E k"]:
    """The positions of each cut's field in the concatenation of all its values, flattened."""
    sizes = [size_of(v) for v in cuts[0].values]
    if not sizes:  # elements that do not depend on θ
        return np.zeros((len(cuts), 0), int)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return np.array([np.concatenate([s + i for s, i in zip(starts, c.indices, strict=True)]) for c in cuts])


# ------------------------------------------------------------------------------------------- behind the cut


class Tail:
    """The part of the program behind the cuts of several elements of one output.

    A call with the inputs of a row computes all values that do not depend on the field, and returns a ``PreparedTail``.
    """

    def __init__(
        self,
        trace: Trace,
        cuts: Sequence[Cut],
        output: Atom,
        elements: Sequence[int],
        reduced: Reduced | None = None,
    ) -> None:
        """Splits the program.

        Args:
            trace: The trace of a row.
            cuts: The cuts of the elements, all through the same values.
            output: The log-density of all elements.
            elements: The places of the elements in the flattened output.
            reduced: The smaller field, if the elements are constant in some directions of the cuts' numbers.
        """
        self.trace, self.output, self.reduced = trace, output, reduced
        self.values, self.indices = cuts[0].values, cuts[0].indices
        self.elements = np.asarray(elements)
        self.positions = _positions(cuts) if len(cuts) > 1 else None
        self.fixed: list[Equation] = []
        self.moving: list[Equation] = []
        varying = set(self.values)
        for equation in needed_equations(trace.equations, [output], frozenset(self.values)):
            if varying.isdisjoint(variables_of(equation.invars)):
                self.fixed.append(equation)
            else:
                self.moving.append(equation)
                varying |= set(equation.outvars)
        # Only the quadrature for one number uses landmarks.
        known = cuts[0].size == 1
        self.crossings = find_crossings(trace, self.moving, output, elements) if known else None
        self.separable = _separable(self.moving, cuts, output, elements)

    def __call__(self, *inputs: ArrayLike) -> "PreparedTail":
        """Prepares the tail for the inputs of a row."""
        known = self.trace.environment(inputs)
        # Vectors are evaluated as a whole, and their other elements may depend on θ in other ways than through the cut.
        known[self.trace.theta] = jnp.zeros(self.trace.size, dtype_of(self.trace.theta))
        evaluate(self.fixed, known)
        return PreparedTail(self, known)

    def unflattened(self, h: Float[Array, " k"], e: Index) -> list[Array]:
        """The values that are cut through, from the field of element e; 0 in places that are not in the field."""
        if not self.values:
            return []
        sizes = [size_of(v) for v in self.values]
        if self.positions is None:
            pieces = jnp.split(h, np.cumsum([len(i) for i in self.indices])[:-1])
            parts = [
                piece if len(i) == size else jnp.zeros(size, h.dtype).at[i].set(piece)
                for piece, i, size in zip(pieces, self.indices, sizes, strict=True)
            ]
        else:
            flat = jnp.zeros(sum(sizes), h.dtype).at[jnp.asarray(self.positions)[e]].set(h)
            parts = jnp.split(flat, np.cumsum(sizes)[:-1])
        return [p.reshape(shape_of(v)).astype(dtype_of(v)) for v, p in zip(self.values, parts, strict=True)]

    def chosen(self, flat: Array, places: np.ndarray, e: Index) -> Array:
        """The entries of a flattened array that belong to element e; ``places`` has one row for each element."""
        return flat[places[0]] if self.positions is None else flat[jnp.asarray(places)[e]]


class PreparedTail:
    """The part of the program behind a cut, at one row."""

    def __init__(self, tail: Tail, known: Env) -> None:
        self.tail, self.known = tail, known

    def log_factor(self, h: Float[Array, " k"], e: Index = 0) -> Float[Array, ""]:
        """The log-density of element ``elements[e]`` when its field is h."""
        if self.tail.reduced is not None:
            h = self.tail.reduced.whole(h)
        if self.tail.separable:
            return self._single(h, e)
        env = self._behind(h, e)
        return self.tail.chosen(jnp.ravel(read(self.tail.output, env)), self.tail.elements, e)

    def landmarks(self, dtype: DTypeLike, e: Index = 0) -> Landmarks:
        """Where the log-density of element ``elements[e]``, with a field of one number, may have peaks or kinks."""
        crossings = self.tail.crossings
        if crossings is None or not crossings.pairs:
            return Landmarks(jnp.zeros(0, dtype), 0)
        ends = []  # the differences are affine in h, so their values at two h give their zeros
        for h in (0.0, 1.0):
            env = self._behind(jnp.full(1, h, dtype), e)
            differences = [read(a, env) - (0.0 if b is None else read(b, env)) for a, b in crossings.pairs]
            flat = jnp.concatenate([jnp.ravel(d) for d in differences])
            ends.append(self.tail.chosen(flat, crossings.places, e))
        slope = ends[1] - ends[0]
        zeros = jnp.where(slope != 0, -ends[0] / jnp.where(slope != 0, slope, 1.0), jnp.nan)
        return Landmarks(zeros.astype(dtype), crossings.centres)

    def _behind(self, h: Float[Array, " k"], e: Index) -> Env:
        """Computes the values of all variables behind the cut."""
        env = self.known | dict(zip(self.tail.values, self.tail.unflattened(h, e), strict=True))
        evaluate(self.tail.moving, env)
        return env

    def _single(self, h: Float[Array, " k"], e: Index) -> Float[Array, ""]:
        """As ``log_factor``, but computes only one element of each vector."""
        place = jnp.asarray(self.tail.elements)[e]
        env: Env = {v: h[i].astype(dtype_of(v)) for i, v in enumerate(self.tail.values)}

        def element(value: Atom) -> Value:
            if isinstance(value, jex.Literal) or value in env:
                return read(value, env)
            known = self.known[value]
            return jnp.asarray(known)[place] if jnp.ndim(known) else known

        for equation in self.tail.moving:
            if equation.primitive.name in ELEMENTWISE:
                env[equation.outvars[0]] = bind(equation, [element(v) for v in equation.invars])[0]
            else:  # one of _STRETCHES
                env[equation.outvars[0]] = element(equation.invars[0])
        return element(self.tail.output)


def _separable(moving: Sequence[Equation], cuts: Sequence[Cut], output: Atom, elements: Sequence[int]) -> bool:
    """Whether each element of a vector behind several cuts can be computed alone, from numbers instead of vectors."""
    size = size_of(output)
    if len(cuts) < 2 or shape_of(output) != (size,) or output in cuts[0].values:
        return False
    shapes = ((), (size,))
    for equation in moving:
        literals_are_numbers = all(
            shape_of(v) == () if isinstance(v, jex.Literal) else shape_of(v) in shapes for v in equation.invars
        )
        if equation.primitive.name not in ELEMENTWISE | _STRETCHES or not literals_are_numbers:
            return False
        if len(equation.outvars) != 1 or shape_of(equation.outvars[0]) not in shapes:
            return False
    for cut, place in zip(cuts, elements, strict=True):
        for value, indices in zip(cut.values, cut.indices, strict=True):
            if len(indices) != 1 or shape_of(value) not in shapes:
                return False
            if shape_of(value) == (size,) and size > 1 and indices[0] != place:
                return False
    return True


def scalar_factor(f: Callable[[Array], Array], dtype: DTypeLike) -> tuple[Callable[..., Float[Array, ""]], Landmarks]:
    """Prepares a log-factor of one number ``(1,) -> ()`` as the factors of a model: returns it with its landmarks."""
    traced = trace(lambda h: [f(h).reshape(1)], jax.ShapeDtypeStruct((1,), dtype))
    cut = Cut((traced.theta,), (np.arange(1),))
    prepared = Tail(traced, [cut], traced.outputs[0], [0])()
    return prepared.log_factor, prepared.landmarks(dtype)
