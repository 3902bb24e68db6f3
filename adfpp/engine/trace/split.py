"""The field: the few affine functions of θ through which a row's log-density depends on it.

A row's log-density is traced to a jaxpr. Every value in it is constant, affine or nonlinear in θ; the smallest vertex
cut of affine values between θ and the output, weighted by the number of scalars that the output needs of each, is the
field. What lies before the cut is linear algebra, what lies behind it is a function of a few numbers.

Knows JAX, not NumPyro.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from adfpp.engine.tilt.landmarks import Marks

Env = dict[Any, Any]


class Degree(IntEnum):
    """How a value depends on θ."""

    CONSTANT = 0
    AFFINE = 1
    NONLINEAR = 2


# ------------------------------------------------------------------------------------------------- tracing


class Trace(NamedTuple):
    """A flat, pruned jaxpr of ``f(theta, *inputs)`` with every value's degree in θ."""

    equations: tuple[Any, ...]
    constants: Env
    theta: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    degrees: dict[Any, Degree]
    producers: dict[Any, int]


_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}
_CALLS |= {"remat": "jaxpr", "checkpoint": "jaxpr", "remat2": "jaxpr"}
_DERIVATIVE_CALLS = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
_DERIVATIVE_CALLS |= {"custom_vjp_call_jaxpr": "fun_jaxpr"}


def trace(f: Callable[..., Any], theta: Any, *inputs: Any, look_inside: bool = True) -> Trace:
    """Traces ``f(theta, *inputs)``, whose outputs are arrays, to a flat list of primitive equations.

    Args:
        f: A function of arrays that returns a flat sequence of arrays.
        theta: ``(N,)`` array or shape struct.
        inputs: further arrays or shape structs: the row, the constants.
        look_inside: Whether calls with custom derivatives are dissolved as well. That may show a smaller field but
            loses their derivative rules.
    """
    calls = _CALLS | _DERIVATIVE_CALLS if look_inside else _CALLS
    closed = jax.make_jaxpr(f)(theta, *inputs)
    flat = jax.make_jaxpr(lambda *a: _inline(closed.jaxpr, closed.consts, a, calls))(theta, *inputs)
    found = _with_degrees(flat)
    sure = [e for e in found.equations if _always_true(e, found.degrees)]
    if sure:
        found = _with_degrees(jax.make_jaxpr(lambda *a: _granted(flat, sure, a))(theta, *inputs))
    return found


def _with_degrees(flat: Any) -> Trace:
    jaxpr = flat.jaxpr
    equations = _needed(jaxpr.eqns, [v for v in jaxpr.outvars if not isinstance(v, jex.Literal)])
    constants = dict(zip(jaxpr.constvars, flat.consts, strict=True))
    degrees: dict[Any, Degree] = {v: Degree.CONSTANT for v in [*jaxpr.constvars, *jaxpr.invars[1:]]}
    degrees[jaxpr.invars[0]] = Degree.AFFINE
    producers: dict[Any, int] = {}
    for i, eqn in enumerate(equations):
        degree = _degree(eqn, [_degree_of(v, degrees) for v in eqn.invars])
        for v in eqn.outvars:
            degrees[v] = (
                degree if jnp.issubdtype(v.aval.dtype, jnp.floating) else Degree(max(degree, 2 * min(degree, 1)))
            )
            producers[v] = i
    return Trace(
        tuple(equations),
        constants,
        jaxpr.invars[0],
        tuple(jaxpr.invars[1:]),
        tuple(jaxpr.outvars),
        {v: Degree(d) for v, d in degrees.items()},
        producers,
    )


def _always_true(eqn: Any, degrees: dict[Any, Degree]) -> bool:
    """Whether an equation asks whether an affine value is a number: θ always is, and a support check is no landmark."""
    if eqn.primitive.name not in ("eq", "ne"):
        return False
    a, b = eqn.invars
    if isinstance(a, jex.Literal) or degrees.get(a) != Degree.AFFINE:
        return False
    if eqn.primitive.name == "eq":
        return a is b
    return isinstance(b, jex.Literal) and bool(np.all(np.isinf(b.val)))


def _granted(flat: Any, sure: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """Evaluates a jaxpr with what some of its equations ask taken for granted."""
    env: Env = dict(zip(flat.jaxpr.constvars, flat.consts, strict=True)) | dict(
        zip(flat.jaxpr.invars, args, strict=True)
    )
    outputs = {id(e.outvars[0]) for e in sure}
    for eqn in flat.jaxpr.eqns:
        if id(eqn.outvars[0]) in outputs:
            env[eqn.outvars[0]] = np.ones(eqn.outvars[0].aval.shape, bool)
        else:
            env.update(zip(eqn.outvars, _bind(eqn, env), strict=True))
    return [_read(v, env) for v in flat.jaxpr.outvars]


def _inline(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], calls: dict[str, str]) -> list[Any]:
    """Evaluates a jaxpr with calls dissolved and log(exp(u)) read as u; under a trace this writes the flat one."""
    exponents: Env = {}  # a positive site is exp(u), and its logarithm in the model is affine again
    env: Env = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        inside = calls.get(eqn.primitive.name)
        if inside is not None and inside in eqn.params:
            called = eqn.params[inside]
            inner, inner_consts = (called.jaxpr, called.consts) if hasattr(called, "consts") else (called, ())
            values = _inline(inner, inner_consts, [_read(v, env) for v in eqn.invars], calls)
        elif eqn.primitive.name == "log" and not isinstance(eqn.invars[0], jex.Literal) and eqn.invars[0] in exponents:
            values = [exponents[eqn.invars[0]]]
        else:
            values = _bind(eqn, env)
        if eqn.primitive.name == "exp":
            exponents[eqn.outvars[0]] = _read(eqn.invars[0], env)
        env.update(zip(eqn.outvars, values, strict=True))
    return [_read(v, env) for v in jaxpr.outvars]


def _read(v: Any, env: Env) -> Any:
    return v.val if isinstance(v, jex.Literal) else env[v]


def _bind(eqn: Any, env: Env) -> Sequence[Any]:
    params = eqn.primitive.get_bind_params(eqn.params)
    out = eqn.primitive.bind(*[_read(v, env) for v in eqn.invars], **params)
    return out if eqn.primitive.multiple_results else [out]


def _needed(equations: Sequence[Any], outputs: Sequence[Any], stop: frozenset[Any] = frozenset()) -> list[Any]:
    """The equations that the outputs need, in order, not looking behind ``stop``."""
    wanted, kept = {v for v in outputs if v not in stop}, []
    for eqn in reversed(equations):
        if any(v in wanted for v in eqn.outvars):
            kept.append(eqn)
            wanted |= {v for v in eqn.invars if not isinstance(v, jex.Literal) and v not in stop}
    return kept[::-1]


def _evaluate(equations: Sequence[Any], env: Env) -> None:
    for eqn in equations:
        env.update(zip(eqn.outvars, _bind(eqn, env), strict=True))


# ------------------------------------------------------------------------------------------------- degrees

# affine whenever their operands are; the operands in the second place onwards of _INDEXED must be constant
_LINEAR = frozenset(
    "neg add sub add_any reshape transpose broadcast_in_dim squeeze expand_dims slice rev reduce_sum cumsum copy "
    "copy_p real imag concatenate stack pad convert_element_type reduce_window_sum split sharding_constraint "
    "optimization_barrier "
    "reduce_precision".split()
)
_BILINEAR = frozenset(["mul", "dot_general", "conv_general_dilated"])
_INDEXED = {"gather": 1, "dynamic_slice": 1, "dynamic_update_slice": 2}


def _degree_of(v: Any, degrees: dict[Any, Degree]) -> Degree:
    return Degree.CONSTANT if isinstance(v, jex.Literal) else Degree(degrees[v])


def _degree(eqn: Any, operands: list[Degree]) -> Degree:
    """The degree in θ of an equation's outputs, from those of its operands."""
    worst = max(operands, default=Degree.CONSTANT)
    if worst != Degree.AFFINE:
        return worst
    name = eqn.primitive.name
    varying = sum(d == Degree.AFFINE for d in operands)
    if name in _LINEAR:
        affine = True
    elif name in _BILINEAR:
        affine = varying == 1
    elif name in ("div", "triangular_solve"):
        numerator = 0 if name == "div" else 1
        affine = varying == 1 and operands[numerator] == Degree.AFFINE
    elif name == "select_n":
        affine = operands[0] == Degree.CONSTANT
    elif name in _INDEXED:
        affine = all(d == Degree.CONSTANT for d in operands[_INDEXED[name] :])
    elif name in ("scatter", "scatter-add", "scatter_add"):
        affine = operands[1] == Degree.CONSTANT
    elif name == "integer_pow":
        affine = eqn.params["y"] == 1
    else:
        affine = False
    return Degree.AFFINE if affine else Degree.NONLINEAR


# ------------------------------------------------------------------------------------- which elements are needed

_MOVES = frozenset("reshape transpose squeeze expand_dims slice rev broadcast_in_dim copy copy_p".split())
_ELEMENTWISE = frozenset(
    "stop_gradient abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp "
    "convert_element_type cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igammac "
    "integer_pow is_finite le lgamma log log1p logistic lt max min mul ne neg nextafter not or polygamma pow "
    "reduce_precision "
    "regularized_incomplete_beta rem round rsqrt select_n sign sin sinh sqrt square sub tan tanh xor zeta".split()
)
_REDUCTIONS = frozenset("reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or argmax argmin".split())


def _needed_elements(trace: Trace, output: Any, wanted: np.ndarray) -> dict[Any, np.ndarray]:
    """For some elements of one output: which elements of every earlier value they may depend on."""
    masks = {output: wanted}
    for eqn in reversed(_needed(trace.equations, [output])):
        for v, needed in zip(eqn.invars, _operand_masks(eqn, [masks.get(v) for v in eqn.outvars]), strict=True):
            if not isinstance(v, jex.Literal):
                masks[v] = masks[v] | needed if v in masks else needed
    return masks


def _operand_masks(eqn: Any, wanted: list[np.ndarray | None]) -> list[np.ndarray]:
    name = eqn.primitive.name
    shapes = [np.shape(v.val) if isinstance(v, jex.Literal) else v.aval.shape for v in eqn.invars]
    dense = [np.ones(s, bool) for s in shapes]
    if len(wanted) != 1 or wanted[0] is None:
        return dense
    out = wanted[0]
    if name in _MOVES and len(eqn.invars) == 1 and not isinstance(eqn.invars[0], jex.Literal):
        source = np.zeros(shapes[0], bool)
        source.reshape(-1)[_moved(eqn, shapes[0])[out]] = True
        return [source]
    if name == "concatenate":
        axis = eqn.params["dimension"]
        return np.split(out, np.cumsum([s[axis] for s in shapes])[:-1], axis=axis)
    if name in _REDUCTIONS:
        kept = np.expand_dims(out, eqn.params["axes"])
        return [np.broadcast_to(kept, shapes[0])]
    if name == "dot_general":
        return _dot_masks(eqn, shapes, out)
    if name in _ELEMENTWISE and all(len(s) in (0, out.ndim) for s in shapes):
        return [_before_broadcast(out, s) for s in shapes]
    if name == "stack":
        return list(np.moveaxis(out, eqn.params["axis"], 0))
    if name == "gather":
        return [_gather_mask(eqn, shapes[0], out), *dense[1:]]
    return dense


def _before_broadcast(out: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Needed elements of an operand that is stretched, along axes of length 1, to the output."""
    if shape == ():
        return np.array(out.any())
    stretched = tuple(i for i, (a, b) in enumerate(zip(shape, out.shape, strict=True)) if a != b)
    return np.asarray(out.any(axis=stretched, keepdims=True))


def _gather_mask(eqn: Any, shape: tuple[int, ...], out: np.ndarray) -> np.ndarray:
    """Needed elements of a gather's operand: along batching axes the output's own, along the others all."""
    numbers = eqn.params["dimension_numbers"]
    operand, indices = numbers.operand_batching_dims, numbers.start_indices_batching_dims
    if not operand:
        return np.ones(shape, bool)
    # the output's axes that are not offsets are the indices' axes but the last, in order
    batch = [d for d in range(out.ndim) if d not in numbers.offset_dims]
    kept = [batch[i] for i in indices]
    wanted = np.asarray(out.any(axis=tuple(d for d in range(out.ndim) if d not in kept)))
    order = np.argsort(np.argsort(kept))
    wanted = wanted.transpose(order)  # axes in the order of operand_batching_dims
    full = np.zeros(shape, bool)
    moved = np.moveaxis(full, operand, range(len(operand)))
    moved[wanted] = True
    return full


def _moved(eqn: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Where each element of a data movement's output comes from: the movement itself, of positions."""
    with jax.ensure_compile_time_eval():
        positions = jnp.arange(int(np.prod(shape)), dtype=jnp.int32).reshape(shape)
        return np.asarray(_bind(eqn, {eqn.invars[0]: positions})[0])


def _dot_masks(eqn: Any, shapes: list[tuple[int, ...]], out: np.ndarray) -> list[np.ndarray]:
    (left_contract, right_contract), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    left_free = [d for d in range(len(shapes[0])) if d not in left_contract and d not in left_batch]
    right_free = [d for d in range(len(shapes[1])) if d not in right_contract and d not in right_batch]
    batch = len(left_batch)
    left_out = out.any(axis=tuple(range(batch + len(left_free), out.ndim)))
    right_out = out.any(axis=tuple(range(batch, batch + len(left_free))))
    masks = []
    for shape, dims, kept in (
        (shapes[0], [*left_batch, *left_free], left_out),
        (shapes[1], [*right_batch, *right_free], right_out),
    ):
        contracted = [d for d in range(len(shape)) if d not in dims]
        order = np.argsort([*dims, *contracted])
        full = np.broadcast_to(
            kept.reshape(kept.shape + (1,) * len(contracted)), [shape[d] for d in [*dims, *contracted]]
        )
        masks.append(full.transpose(order))
    return masks


# ------------------------------------------------------------------------------------------------- the cut


@dataclass(frozen=True)
class Cut:
    """The field of one element of one output.

    Attributes:
        values: The affine values cut through.
        indices: For each, which of its elements (flat) belong to the field.
    """

    values: tuple[Any, ...]
    indices: tuple[np.ndarray, ...]

    @property
    def size(self) -> int:
        """Number of scalars in the field."""
        return sum(len(i) for i in self.indices)


def smallest_cut(trace: Trace, output: Any, element: int) -> Cut:
    """The smallest set of affine scalars that separates θ from one element of an output.

    Among cuts of equal size the one nearest to the output is taken, so that as little as possible is left to
    evaluate behind it.
    """
    if isinstance(output, jex.Literal) or trace.degrees.get(output, Degree.CONSTANT) == Degree.CONSTANT:
        return Cut((), ())
    wanted = np.zeros(output.aval.shape, bool)
    wanted.reshape(-1)[element] = True
    masks = _needed_elements(trace, output, wanted)
    varying = [v for v in masks if trace.degrees.get(v, Degree.CONSTANT) != Degree.CONSTANT and masks[v].any()]
    number = {v: i for i, v in enumerate(varying)}
    infinite = sum(int(masks[v].sum()) for v in varying) + 1
    weights = [int(masks[v].sum()) if trace.degrees[v] == Degree.AFFINE else infinite for v in varying]
    edges = set()
    for eqn in _needed(trace.equations, [output]):
        for a in eqn.invars:
            for b in eqn.outvars:
                if not isinstance(a, jex.Literal) and a in number and b in number:
                    edges.add((number[a], number[b]))
    if trace.degrees[output] == Degree.AFFINE:
        cut = [number[output]]
    else:
        cut = _minimum_vertex_cut(weights, edges, number[trace.theta], number[output])
    chosen = [varying[i] for i in sorted(cut)]
    order = {v: i for i, v in enumerate([trace.theta, *(v for e in trace.equations for v in e.outvars)])}
    chosen.sort(key=lambda v: order[v])
    return Cut(tuple(chosen), tuple(np.flatnonzero(masks[v]) for v in chosen))


def _minimum_vertex_cut(weights: list[int], edges: set[tuple[int, int]], source: int, sink: int) -> list[int]:
    """Vertices of least total weight that separate source from sink, as near to the sink as possible.

    Each vertex v is split into v_in = 2v and v_out = 2v + 1 joined by its weight; shortest augmenting paths.
    """
    infinite = max(weights) * (len(weights) + 1) + 1
    residual: list[dict[int, int]] = [{} for _ in range(2 * len(weights))]
    for v, w in enumerate(weights):
        residual[2 * v][2 * v + 1] = w
        residual[2 * v + 1].setdefault(2 * v, 0)
    for a, b in edges:
        residual[2 * a + 1][2 * b] = infinite
        residual[2 * b].setdefault(2 * a + 1, 0)
    start, end = 2 * source, 2 * sink + 1
    while (parents := _augmenting_path(residual, start, end)) is not None:
        path = [end]
        while path[-1] != start:
            path.append(parents[path[-1]])
        steps = list(zip(path[1:], path[:-1], strict=True))
        amount = min(residual[a][b] for a, b in steps)
        for a, b in steps:
            residual[a][b] -= amount
            residual[b][a] = residual[b].get(a, 0) + amount
    # nearest to the sink: what can still reach it against the residual
    reaches, queue = {end}, deque([end])
    backwards: list[list[int]] = [[] for _ in residual]
    for a, targets in enumerate(residual):
        for b, capacity in targets.items():
            if capacity > 0:
                backwards[b].append(a)
    while queue:
        for a in backwards[queue.popleft()]:
            if a not in reaches:
                reaches.add(a)
                queue.append(a)
    return [v for v in range(len(weights)) if 2 * v + 1 in reaches and 2 * v not in reaches]


def _augmenting_path(residual: list[dict[int, int]], start: int, end: int) -> dict[int, int] | None:
    parents, queue = {start: start}, deque([start])
    while queue:
        a = queue.popleft()
        if a == end:
            return parents
        for b, capacity in residual[a].items():
            if capacity > 0 and b not in parents:
                parents[b] = a
                queue.append(b)
    return None


# ------------------------------------------------------------------------------------------------- the two halves


def gaussian_but_for(trace: Trace, cut: Cut, output: Any) -> int | None:
    """The one number of a field, given which an output is quadratic in the others; -1 if it is so in all of them."""
    starts = np.cumsum([0, *(len(i) for i in cut.indices)])
    behind = _needed(trace.equations, [output], frozenset(cut.values))
    for left_out in (None, *(v for v, i in enumerate(cut.indices) if len(i) == 1)):
        varying = {v for i, v in enumerate(cut.values) if i != left_out}
        if varying and _polynomial_degree(behind, varying, output) <= 2:
            return -1 if left_out is None else int(starts[left_out])
    return None


_MORE = 3  # stands for any higher degree, and for what is no polynomial


def _polynomial_degree(behind: Sequence[Any], varying: set[Any], output: Any) -> int:
    """Joint degree of an output as a polynomial in some values, everything else fixed; at most ``_MORE``."""
    degrees: dict[Any, int] = dict.fromkeys(varying, 1)
    for eqn in behind:
        of = [0 if isinstance(v, jex.Literal) else degrees.get(v, 0) for v in eqn.invars]
        name = eqn.primitive.name
        if not any(of):
            continue
        if name in _LINEAR:
            degree = max(of)
        elif name in _BILINEAR:
            degree = sum(of)
        elif name == "div":
            degree = of[0] if of[1] == 0 else _MORE
        elif name == "select_n":
            degree = max(of) if of[0] == 0 else _MORE
        elif name in _INDEXED:
            degree = max(of) if not any(of[_INDEXED[name] :]) else _MORE
        elif name == "square":
            degree = 2 * of[0]
        elif name == "integer_pow" and eqn.params["y"] > 0:
            degree = eqn.params["y"] * of[0]
        else:
            degree = _MORE
        for v in eqn.outvars:
            if jnp.issubdtype(v.aval.dtype, jnp.floating):
                degrees[v] = min(degree, _MORE)
            else:
                degrees[v] = _MORE
    return degrees.get(output, 0)


class Reach(NamedTuple):
    """Which coordinates of θ the numbers of some fields read.

    Attributes:
        touched: ``(k, N)`` booleans: those that number i may read, in any row.
        most: ``(k, parts)`` how many of each part's it reads at once, at most: an entry picked by an index is one.
    """

    touched: np.ndarray
    most: np.ndarray


def reach(trace: Trace, cuts: Sequence[Cut], parts: Sequence[np.ndarray]) -> Reach:
    """What the fields of several cuts through the same values read of θ, and of some parts of it."""
    touched: list[np.ndarray] = []
    most: list[list[int]] = []
    size = trace.theta.aval.shape[0]
    for j, value in enumerate(cuts[0].values):
        counts = [_read_at_once(trace, value, where) for where in parts]
        for i in range(len(cuts[0].indices[j])):
            seen = np.zeros(size, bool)
            for cut in cuts:
                wanted = np.zeros(value.aval.shape, bool)
                wanted.reshape(-1)[cut.indices[j][i]] = True
                if value is trace.theta:
                    seen |= wanted
                else:
                    masks = _needed_elements(trace, value, wanted)
                    seen |= masks.get(trace.theta, np.zeros(size, bool))
            touched.append(seen)
            most.append([min(c, int(seen[w].sum())) for c, w in zip(counts, parts, strict=True)])
    return Reach(np.array(touched).reshape(-1, size), np.array(most, int).reshape(-1, len(parts)))


def _read_at_once(trace: Trace, value: Any, where: np.ndarray) -> int:
    """How many of some coordinates of θ an element of an affine value is made of, at most."""
    counts: dict[Any, int] = {trace.theta: 1}
    for eqn in _needed(trace.equations, [value]):
        own = [0 if isinstance(v, jex.Literal) else counts.get(v, 0) for v in eqn.invars]
        name = eqn.primitive.name
        times = 1
        if name == "dot_general":
            (axes, _), _ = eqn.params["dimension_numbers"]
            times = math.prod(eqn.invars[0].aval.shape[a] for a in axes)
        elif name in ("reduce_sum", "cumsum"):
            axes = eqn.params["axes"] if name == "reduce_sum" else (eqn.params["axis"],)
            times = math.prod(eqn.invars[0].aval.shape[a] for a in axes)
        elif name not in _MOVES | _ELEMENTWISE | {"concatenate", "gather", "dynamic_slice", "stack", "reduce_sum"}:
            times = trace.theta.aval.shape[0]
        together = max(own, default=0) if name in ("concatenate", "stack", "select_n") else sum(own)
        for v in eqn.outvars:
            there = together and trace.degrees[v] != Degree.CONSTANT and depends_on(trace, v)[where].any()
            counts[v] = times * together if there else 0
    return counts.get(value, 0)


def affine_part(trace: Trace, cuts: Sequence[Cut]) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """The fields of several cuts through the same values.

    Returns:
        ``f(theta, *inputs) -> (A, h)`` with ``A (E, k, N)`` and ``h (E, k)``: the field of cut e is ``h[e]`` at
        theta and changes by ``A[e] @ change``. A does not depend on theta.
    """
    values = cuts[0].values
    equations = _needed(trace.equations, values, frozenset([trace.theta]))
    positions = _stacked_positions(cuts)

    def fields(theta: jax.Array, *inputs: Any) -> jax.Array:
        env = trace.constants | {trace.theta: theta} | dict(zip(trace.inputs, inputs, strict=True))
        _evaluate(equations, env)
        flat = [jnp.ravel(env[v]).astype(theta.dtype) for v in values]
        if len(cuts) == 1:
            flat = [f if len(i) == f.size else f[i] for f, i in zip(flat, cuts[0].indices, strict=True)]
            return (flat[0] if len(flat) == 1 else jnp.concatenate(flat))[None]
        return jnp.concatenate(flat)[positions]

    def matrices(theta: jax.Array, *inputs: Any) -> tuple[jax.Array, jax.Array]:
        value, pull = jax.vjp(lambda t: fields(t, *inputs), theta)
        if value.size == 1:
            (rows,) = pull(jnp.ones_like(value))
        else:
            (rows,) = jax.vmap(pull)(jnp.eye(value.size, dtype=value.dtype).reshape((value.size, *value.shape)))
        return rows.reshape(value.shape + theta.shape), value

    return matrices


def _stacked_positions(cuts: Sequence[Cut]) -> np.ndarray:
    """``(E, k)`` positions of each cut's field in the concatenation of all its values, flattened."""
    sizes = [int(np.prod(v.aval.shape)) for v in cuts[0].values]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]) if sizes else np.zeros(0, int)
    if not sizes:  # elements that do not depend on θ
        return np.zeros((len(cuts), 0), int)
    return np.array([np.concatenate([s + i for s, i in zip(starts, c.indices, strict=True)]) for c in cuts])


class _Marked(NamedTuple):
    """Pairs of affine values whose difference vanishes at a landmark; the second may be a constant."""

    pairs: tuple[tuple[Any, Any], ...]
    places: np.ndarray  # (E, m) in the concatenation of the differences, flattened
    centres: int


_CENTRES = frozenset(["integer_pow", "pow", "square", "mul"])
_BENDS = frozenset("abs sign exp exp2 expm1 log1p logistic tanh erf erfc".split())
_COMPARISONS = frozenset("max min lt le gt ge clamp".split())
_MOST_MARKS = 6


def _marked_values(trace: Trace, behind: Sequence[Any], output: Any, elements: Sequence[int]) -> _Marked:
    """The affine elements behind a cut of one number that enter squares (these first), kinks or exponentials."""
    pairs: dict[Any, tuple[Any, Any]] = {}
    found: list[list[tuple[tuple[Any, int], bool]]] = []
    for element in elements:
        wanted = np.zeros(output.aval.shape, bool)
        wanted.reshape(-1)[element] = True
        masks = _needed_elements(trace, output, wanted)
        mine: dict[tuple[Any, int], bool] = {}
        for eqn in behind:
            for pair in _vanishing(trace, eqn):
                name = tuple(repr(v.val) if isinstance(v, jex.Literal) else id(v) for v in pair)
                pairs[name] = pair
                # which elements of a comparison matter shows in its larger operand
                larger = max(
                    (v for v in pair if v is not None and not isinstance(v, jex.Literal)),
                    key=lambda v: v.aval.size,
                )
                for i in np.flatnonzero(masks.get(larger, np.zeros(0, bool))):
                    mine[name, int(i)] = mine.get((name, int(i)), False) or eqn.primitive.name in _CENTRES
        found.append(sorted(mine.items(), key=lambda item: not item[1])[:_MOST_MARKS])
    count = min(len(f) for f in found)
    found = [f[:count] for f in found]
    used = list(dict.fromkeys(name for f in found for (name, _), _ in f))
    sizes = [int(np.prod(np.broadcast_shapes(*(_shape_of(v) for v in pairs[n] if v is not None)))) for n in used]
    starts = dict(zip(used, np.cumsum([0, *sizes]), strict=False))
    places = np.array([[starts[n] + i for (n, i), _ in f] for f in found], int).reshape(len(found), count)
    centres = min((sum(c for _, c in f) for f in found), default=0)
    return _Marked(tuple(pairs[n] for n in used), places, centres)


def _shape_of(v: Any) -> tuple[int, ...]:
    return np.shape(v.val) if isinstance(v, jex.Literal) else v.aval.shape


def _vanishing(trace: Trace, eqn: Any) -> list[tuple[Any, Any]]:
    """The differences of operands whose zeros are landmarks of this equation: (a, b) for a - b, (a, None) for a."""
    degrees = [_degree_of(v, trace.degrees) for v in eqn.invars]
    name = eqn.primitive.name
    if name in ("integer_pow", "pow", "square") or name in _BENDS:
        return [(eqn.invars[0], None)] if degrees[0] == Degree.AFFINE else []
    if name == "mul" and eqn.invars[0] is eqn.invars[1]:
        return [(eqn.invars[0], None)] if degrees[0] == Degree.AFFINE else []
    if name == "clamp":  # clamp(low, x, high)
        low, x, high = eqn.invars
        pairs = [(x, low), (x, high)]
    elif name in _COMPARISONS:
        pairs = [(eqn.invars[0], eqn.invars[1])]
    else:
        return []
    known = {id(v): d for v, d in zip(eqn.invars, degrees, strict=True)}
    return [
        (a, b)
        for a, b in pairs
        if max(known[id(a)], known[id(b)]) == Degree.AFFINE
        and all(jnp.issubdtype(getattr(v, "aval", v).dtype, jnp.floating) for v in (a, b))
    ]


def tail_part(trace: Trace, cuts: Sequence[Cut], output: Any, elements: Sequence[int]) -> Callable[..., Any]:
    """What lies behind the cuts of several elements of one output.

    Returns:
        ``prepare(*inputs) -> (log_factor, marks)``: ``log_factor(h, e)`` is the value of element ``elements[e]`` when
        the field of cut e is ``h (k,)``; ``marks(dtype, e)`` are its landmarks. What does not depend on the field is
        computed in ``prepare``.
    """
    values = cuts[0].values
    behind = _needed(trace.equations, [output], frozenset(values))
    fixed, moving = [], []
    varies = set(values)
    for eqn in behind:
        depends = any(not isinstance(v, jex.Literal) and v in varies for v in eqn.invars)
        (moving if depends else fixed).append(eqn)
        if depends:
            varies |= set(eqn.outvars)
    positions = _stacked_positions(cuts) if len(cuts) > 1 else None
    places = np.asarray(elements)
    marked = _marked_values(trace, moving, output, elements) if cuts[0].size == 1 else None
    alone = _elements_stand_alone(moving, cuts, output, elements)

    def prepare(*inputs: Any) -> tuple[Callable[[jax.Array, Any], jax.Array], Callable[..., Marks]]:
        shared = trace.constants | dict(zip(trace.inputs, inputs, strict=True))
        _evaluate(fixed, shared)

        def one_alone(h: jax.Array, e: Any = 0) -> jax.Array:
            """As ``log_factor``, of one element of each vector instead of all."""
            place = jnp.asarray(places)[e]

            def of(v: Any) -> Any:
                if isinstance(v, jex.Literal) or v in env:
                    return _read(v, env)
                known = shared[v]
                return known[place] if jnp.ndim(known) else known

            env: Env = {v: h[i].astype(v.aval.dtype) for i, v in enumerate(values)}
            for eqn in moving:
                if eqn.primitive.name in _ELEMENTWISE:
                    params = eqn.primitive.get_bind_params(eqn.params)
                    env[eqn.outvars[0]] = eqn.primitive.bind(*[of(v) for v in eqn.invars], **params)
                else:  # one of _STRETCHES
                    env[eqn.outvars[0]] = of(eqn.invars[0])
            return of(output)

        def log_factor(h: jax.Array, e: Any = 0) -> jax.Array:
            env = dict(shared)
            env.update(zip(values, _unstack(h, e), strict=True))
            _evaluate(moving, env)
            out = jnp.ravel(_read(output, env))
            return out[places[0]] if positions is None else out[jnp.asarray(places)[e]]

        def crossings(marked: _Marked, dtype: Any, e: Any) -> jax.Array:
            """Where the marked values, which are affine in the one number h, vanish."""
            at = []
            for h in (0.0, 1.0):
                env = dict(shared)
                env.update(zip(values, _unstack(jnp.full(1, h, dtype), e), strict=True))
                _evaluate(moving, env)
                differences = [_read(a, env) - (0.0 if b is None else _read(b, env)) for a, b in marked.pairs]
                flat = jnp.concatenate([jnp.ravel(d) for d in differences])
                at.append(flat[marked.places[0]] if positions is None else flat[jnp.asarray(marked.places)[e]])
            slope = at[1] - at[0]
            return jnp.where(slope != 0, -at[0] / jnp.where(slope != 0, slope, 1.0), jnp.nan).astype(dtype)

        def marks(dtype: Any, e: Any = 0) -> Marks:
            if marked is None or not marked.pairs:
                return Marks(jnp.zeros(0, dtype), 0)
            return Marks(crossings(marked, dtype, e), marked.centres)

        return one_alone if alone else log_factor, marks

    def _unstack(h: jax.Array, e: Any) -> list[jax.Array]:
        if not values:
            return []
        if positions is None:
            pieces, start = [], 0
            for v, i in zip(values, cuts[0].indices, strict=True):
                part = h[start : start + len(i)]
                start += len(i)
                size = int(np.prod(v.aval.shape))
                full = part if len(i) == size else jnp.zeros(size, h.dtype).at[i].set(part)
                pieces.append(full.reshape(v.aval.shape).astype(v.aval.dtype))
            return pieces
        sizes = [int(np.prod(v.aval.shape)) for v in values]
        flat = jnp.zeros(sum(sizes), h.dtype).at[jnp.asarray(positions)[e]].set(h)
        parts = jnp.split(flat, np.cumsum(sizes)[:-1])
        return [p.reshape(v.aval.shape).astype(v.aval.dtype) for v, p in zip(values, parts, strict=True)]

    return prepare


_STRETCHES = frozenset("broadcast_in_dim reshape squeeze copy".split())


def behind_alone(trace: Trace, values: Sequence[Any], output: Any) -> bool:
    """Whether an output depends on θ by way of these values alone."""
    behind = _needed(trace.equations, [output], frozenset(values))
    return output is not trace.theta and all(v is not trace.theta for eqn in behind for v in eqn.invars)


def _elements_stand_alone(moving: Sequence[Any], cuts: Sequence[Cut], output: Any, chosen: Sequence[int]) -> bool:
    """Whether each element of a vector behind several cuts can be computed by itself, on numbers for vectors."""
    size = output.aval.size
    if len(cuts) < 2 or output.aval.shape != (size,) or output in cuts[0].values:
        return False
    shapes = ((), (size,))
    for eqn in moving:
        same = all(np.shape(v.val) == () if isinstance(v, jex.Literal) else v.aval.shape in shapes for v in eqn.invars)
        if eqn.primitive.name not in _ELEMENTWISE | _STRETCHES or not same or len(eqn.outvars) != 1:
            return False
        if eqn.outvars[0].aval.shape not in shapes:
            return False
    for cut, place in zip(cuts, chosen, strict=True):
        for value, indices in zip(cut.values, cut.indices, strict=True):
            if len(indices) != 1 or value.aval.shape not in shapes:
                return False
            if value.aval.shape == (size,) and size > 1 and indices[0] != place:
                return False
    return True


def part_of(trace: Trace, output: Any) -> Callable[..., Any]:
    """One output that does not depend on θ, as a function of the inputs alone."""
    if isinstance(output, jex.Literal):
        return lambda *inputs: np.asarray(output.val)
    equations = _needed(trace.equations, [output])

    def evaluate(*inputs: Any) -> Any:
        env = trace.constants | dict(zip(trace.inputs, inputs, strict=True))
        _evaluate(equations, env)
        return env[output]

    return evaluate


def known_value(trace: Trace, output: Any) -> np.ndarray | None:
    """The value of an output that depends on nothing at all, or None."""
    if isinstance(output, jex.Literal):
        return np.asarray(output.val)
    seen = {v for e in _needed(trace.equations, [output]) for v in e.invars if not isinstance(v, jex.Literal)}
    if seen & {trace.theta, *trace.inputs} or output in trace.inputs or output is trace.theta:
        return None
    with jax.ensure_compile_time_eval():
        return np.asarray(part_of(trace, output)(*([None] * len(trace.inputs))))


_WRAPPERS = frozenset("reshape broadcast_in_dim squeeze expand_dims convert_element_type copy".split())


def summands(trace: Trace, output: Any) -> list[Any]:
    """Values whose elements add up to an output of one number."""
    if isinstance(output, jex.Literal) or output not in trace.producers:
        return [output]
    eqn = trace.equations[trace.producers[output]]
    single = all(isinstance(v, jex.Literal) or v.aval.size == 1 for v in eqn.invars)
    if eqn.primitive.name in _WRAPPERS and single:
        return summands(trace, eqn.invars[0])
    if eqn.primitive.name in ("add", "add_any") and single:
        return [v for operand in eqn.invars for v in summands(trace, operand)]
    if eqn.primitive.name == "reduce_sum":
        return [eqn.invars[0]]
    return [output]


def depends_on(trace: Trace, output: Any) -> np.ndarray:
    """``(N,)`` booleans: the elements of θ that an output may depend on."""
    if isinstance(output, jex.Literal) or trace.degrees.get(output, Degree.CONSTANT) == Degree.CONSTANT:
        return np.zeros(trace.theta.aval.shape, bool)
    if output is trace.theta:
        return np.ones(trace.theta.aval.shape, bool)
    masks = _needed_elements(trace, output, np.ones(output.aval.shape, bool))
    return masks.get(trace.theta, np.zeros(trace.theta.aval.shape, bool))


def scalar_factor(f: Callable[[jax.Array], jax.Array], dtype: Any) -> tuple[Callable[..., jax.Array], Marks]:
    """A log-factor ``(1,) -> ()`` of one number, prepared as those of a model are: itself, and its landmarks."""
    traced = trace(lambda h: [f(h).reshape(1)], jax.ShapeDtypeStruct((1,), dtype))
    cut = Cut((traced.theta,), (np.arange(1),))
    log_factor, marks = tail_part(traced, [cut], traced.outputs[0], [0])()
    return log_factor, marks(dtype)
