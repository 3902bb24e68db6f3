"""Chooses the rule that computes the tilted moments of a factor, and gives the reason in words."""

from dataclasses import dataclass, field
from typing import NamedTuple

from adfpp.engine.tilt.base import IntegralRule
from adfpp.engine.tilt.conditional import Conditional, DrawnConditional
from adfpp.engine.tilt.montecarlo import MonteCarlo
from adfpp.engine.tilt.quadrature import Quadrature


class Choice(NamedTuple):
    """A rule for a factor, and the reason for the choice in words."""

    rule: IntegralRule
    why: str


@dataclass(frozen=True)
class Moments:
    """How tilted moments are computed: by a closed form if there is one, else by quadrature, else by Monte Carlo.

    Attributes:
        closed: Whether registered closed forms are used.
        quadrature: The rule for small fields.
        max_quadrature: The largest size of a field for quadrature.
        monte_carlo: The rule for larger fields.
        reduced: Whether directions in which a factor seems to be constant are left out of its field.
    """

    closed: bool = True
    quadrature: IntegralRule = field(default_factory=Quadrature)
    max_quadrature: int = 3
    monte_carlo: IntegralRule = field(default_factory=MonteCarlo)
    reduced: bool = True

    def choose(self, size: int) -> Choice:
        """Chooses the rule for the integral over a field of this size."""
        if size <= self.max_quadrature:
            return Choice(self.quadrature, f"adaptive quadrature: {size}-dimensional integral")
        return Choice(self.monte_carlo, f"quasi-Monte-Carlo: a field of {size} is too large for quadrature")

    @property
    def conditional(self) -> bool:
        """Whether factors that are Gaussian in most numbers of the field, if the others are fixed, are treated as such.

        Rules for the limit of power 0 integrate over the whole field.
        """
        return self.max_quadrature > 0 and isinstance(self.quadrature, Quadrature)

    def choose_conditional(self, outer: tuple[int, ...]) -> Choice | None:
        """Chooses the rule for a factor that is Gaussian if some numbers of its field are fixed.

        Returns None if the rule for so many numbers gives no points.
        """
        rule = self.choose(len(outer)).rule if outer else self.quadrature
        if not isinstance(rule, Quadrature | MonteCarlo):
            return None
        if not outer:
            return Choice(Conditional(outer, rule), "Gaussian: by algebra")
        why = f"{len(outer)}-dimensional integral: Gaussian in the rest"
        if isinstance(rule, MonteCarlo):
            return Choice(DrawnConditional(outer, rule), f"quasi-Monte-Carlo, {why}")
        return Choice(Conditional(outer, rule), why)


AUTO = Moments()
ACCURATE = Moments(
    quadrature=Quadrature(tol=1e-11, report=1e-8, max_panels=400, tensor_tol=1e-8, tensor_nodes=5),
    monte_carlo=MonteCarlo(points=8192),
)
QUADRATURE = Moments(closed=False)
MONTE_CARLO = Moments(closed=False, max_quadrature=0)
_NAMED = {"auto": AUTO, "accurate": ACCURATE, "quadrature": QUADRATURE, "montecarlo": MONTE_CARLO}


def moments_named(moments: str | Moments) -> Moments:
    """Returns the strategy with this name: "auto", "accurate", "quadrature", "montecarlo"; or the given strategy."""
    if isinstance(moments, Moments):
        return moments
    if moments not in _NAMED:
        raise ValueError(f"moments={moments!r} is not known; use one of {sorted(_NAMED)} or an adfpp.Moments.")
    return _NAMED[moments]
