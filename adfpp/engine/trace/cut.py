"""The field of a factor: the smallest set of affine numbers through which its log-density depends on θ.

Every value of a trace is constant, affine or nonlinear in θ. The field is the smallest vertex cut of affine values
between θ and the output, where the weight of a value is the number of its elements that the output needs.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from jax.extend import core as jex
from jaxtyping import Int
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from adfpp.engine.trace.degree import Degree, polynomial_degree
from adfpp.engine.trace.interpret import Atom, Variable, needed_equations, variables_of
from adfpp.engine.trace.touch import Reach, elements_read, one_element, reach
from adfpp.engine.trace.tracing import Trace


@dataclass(frozen=True)
class Cut:
    """The field of one element of one output.

    Attributes:
        values: The affine values that are cut through.
        indices: For each value, the places of its elements (in row-major order) that belong to the field.
    """

    values: tuple[Variable, ...]
    indices: tuple[Int[np.ndarray, " elements"], ...]

    @property
    def size(self) -> int:
        """The number of scalars in the field."""
        return sum(len(i) for i in self.indices)


def smallest_cut(trace: Trace, output: Atom, element: int) -> Cut:
    """Finds the smallest set of affine scalars that separates θ from one element of an output.

    Among cuts of equal size it takes the one nearest to the output, so that the program behind it is as short as
    possible.
    """
    if isinstance(output, jex.Literal) or trace.degree(output) == Degree.CONSTANT:
        return Cut((), ())
    masks = elements_read(trace, output, one_element(output, element))
    if trace.theta not in masks or not masks[trace.theta].any():
        return Cut((), ())  # other elements of the output depend on θ, but not this one
    varying = [v for v in masks if trace.degree(v) != Degree.CONSTANT and masks[v].any()]
    number = {v: i for i, v in enumerate(varying)}
    if trace.degree(output) == Degree.AFFINE:
        chosen = [output]
    else:
        edges = {
            (number[a], number[b])
            for equation in needed_equations(trace.equations, [output])
            for a in variables_of(equation.invars)
            for b in equation.outvars
            if a in number and b in number
        }
        weights = [int(masks[v].sum()) if trace.degree(v) == Degree.AFFINE else None for v in varying]
        cut = minimum_vertex_cut(weights, edges, number[trace.theta], number[output])
        order = {v: i for i, v in enumerate([trace.theta, *(v for e in trace.equations for v in e.outvars)])}
        chosen = sorted((varying[i] for i in cut), key=lambda v: order[v])
    return Cut(tuple(chosen), tuple(np.flatnonzero(masks[v]) for v in chosen))


def minimum_vertex_cut(
    weights: Sequence[int | None], edges: Collection[tuple[int, int]], source: int, sink: int
) -> list[int]:
    """Finds the vertices of least total weight that separate the source from the sink, as near to the sink as possible.

    Each vertex v is split into an entrance 2v and an exit 2v + 1, joined by an edge whose capacity is its weight. A
    maximum flow from the source's entrance to the sink's exit saturates the edges of every minimum cut. The cut nearest
    to the sink is the border of the set of vertices from which the sink can still be reached in the residual graph.
    That set is the same for every maximum flow.

    Args:
        weights: The weight of each vertex; None if it may not be cut. The source, the sink or both must have a weight.
        edges: Pairs of vertices; the graph has no cycles.
        source: The vertex at which paths start; it may itself be cut.
        sink: The vertex at which paths end; it may itself be cut.

    Returns:
        The vertices of the cut, in ascending order.
    """
    # The source or the sink alone is a cut, so no flow is larger than its weight. A capacity above that bound acts as
    # an infinite one. SciPy's capacities are 32-bit integers, which it must not overflow.
    bound = min(w for w in (weights[source], weights[sink]) if w is not None)
    unlimited = bound + 1
    if unlimited > np.iinfo(np.int32).max // 2:
        raise OverflowError(
            f"The cut between the parameters and a factor would need capacities of {bound}, beyond SciPy's 32-bit "
            "integers: a model this large (2**30 unconstrained parameters) is not supported."
        )
    vertices = np.arange(len(weights))
    tails, heads = np.array(sorted(edges), int).reshape(-1, 2).T
    capacities = [unlimited if w is None else min(w, unlimited) for w in weights] + [unlimited] * len(tails)
    rows, columns = np.concatenate([2 * vertices, 2 * tails + 1]), np.concatenate([2 * vertices + 1, 2 * heads])
    size = 2 * len(weights)
    graph = csr_array(coo_array((np.array(capacities, np.int32), (rows, columns)), shape=(size, size)))
    start, end = 2 * source, 2 * sink + 1
    residual = csr_array(graph - maximum_flow(graph, start, end).flow)
    residual.eliminate_zeros()  # an explicit zero would count as an edge
    reaching = np.zeros(size, bool)
    reaching[breadth_first_order(csr_array(residual.T), end, return_predecessors=False)] = True
    return [int(v) for v in vertices if reaching[2 * v + 1] and not reaching[2 * v]]


def gaussian_but_for(trace: Trace, cut: Cut, output: Atom) -> tuple[int, ...] | None:
    """Finds the numbers of a field that must be fixed for an output to be quadratic in the other numbers.

    Values in which the output is not quadratic are fixed. If it is not quadratic in the others together, as the square
    of a product is not, then those that cost the fewest numbers are fixed as well.

    Returns:
        The places of the numbers in the field; None if no number is left.
    """
    behind = needed_equations(trace.equations, [output], frozenset(cut.values))

    def quadratic(values: Collection[Variable]) -> bool:
        return polynomial_degree(behind, values, output) <= 2

    sizes = {v: len(i) for v, i in zip(cut.values, cut.indices, strict=True)}
    free = [v for v in cut.values if quadratic([v])]
    while free and not quadratic(free):
        enough = [v for v in free if quadratic([w for w in free if w is not v])]
        free.remove(min(enough or free, key=lambda v: sizes[v]))
    if not free:
        return None
    starts = np.cumsum([0, *sizes.values()])
    places = [range(starts[i], starts[i + 1]) for i, v in enumerate(cut.values) if v not in free]
    return tuple(int(p) for part in places for p in part)


def reach_of_cuts(trace: Trace, cuts: Sequence[Cut], parts: Sequence[np.ndarray]) -> Reach:
    """The coordinates of θ, and of some parts of it, that the fields of several cuts through the same values read."""
    return reach(trace, cuts[0].values, [cut.indices for cut in cuts], parts)
