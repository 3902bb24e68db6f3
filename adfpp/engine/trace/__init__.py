"""Analyses a jaxpr: how each value depends on θ, the smallest field, and the program before and behind the field.

The modules, in the order in which they build on one another: ``interpret`` evaluates equations, ``degree`` determines
how a value depends on θ, ``tracing`` turns a function into a flat list of equations, ``touch`` finds the coordinates of
θ that a value reads, ``rewriting`` rewrites the equations so that fields get smaller, ``cut`` finds the field,
``landmarks`` finds where a factor may have peaks and kinks, ``split`` gives the program before and behind the field,
and ``invariance`` finds directions of the field in which the factor does not change.

This package uses JAX, but not NumPyro.
"""

from adfpp.engine.trace.cut import Cut, gaussian_but_for, minimum_vertex_cut, reach_of_cuts, smallest_cut
from adfpp.engine.trace.degree import Degree, polynomial_degree
from adfpp.engine.trace.interpret import Atom, bind, dtype_of, shape_of, size_of
from adfpp.engine.trace.invariance import Reduced, differ, nudged, reduced_field
from adfpp.engine.trace.rewriting import trace
from adfpp.engine.trace.split import Fields, PreparedTail, Tail, affine_part, behind_alone, scalar_factor
from adfpp.engine.trace.touch import Reach, depends_on, only_moves
from adfpp.engine.trace.tracing import Trace, known_value, part_of, pruned, reads, summands

__all__ = [
    "Atom",
    "Cut",
    "Degree",
    "Fields",
    "PreparedTail",
    "Reach",
    "Reduced",
    "Tail",
    "Trace",
    "affine_part",
    "behind_alone",
    "bind",
    "depends_on",
    "differ",
    "dtype_of",
    "gaussian_but_for",
    "known_value",
    "nudged",
    "minimum_vertex_cut",
    "only_moves",
    "part_of",
    "polynomial_degree",
    "pruned",
    "reads",
    "reach_of_cuts",
    "reduced_field",
    "scalar_factor",
    "shape_of",
    "size_of",
    "smallest_cut",
    "summands",
    "trace",
]
