"""Which rule computes the tilted moments of a factor, and why."""

from dataclasses import dataclass, field

from adfpp.engine.tilt.base import ClosedForm
from adfpp.engine.tilt.montecarlo import MonteCarlo
from adfpp.engine.tilt.quadrature import Quadrature


@dataclass(frozen=True)
class Moments:
    """How tilted moments are computed: a closed form where there is one, else quadrature, else Monte Carlo.

    Attributes:
        closed: Whether registered closed forms are used.
        quadrature: The rule for small fields.
        max_quadrature: The largest field that quadrature takes.
        monte_carlo: The rule for larger fields.
    """

    closed: bool = True
    quadrature: Quadrature = field(default_factory=Quadrature)
    max_quadrature: int = 3
    monte_carlo: MonteCarlo = field(default_factory=MonteCarlo)

    def choose(self, size: int, form: ClosedForm | None) -> tuple[ClosedForm | Quadrature | MonteCarlo, str]:
        """The rule for a field of this size, and the reason in words."""
        if form is not None and self.closed:
            constants = ", ".join(form.constants)
            return form, f"closed form: {form.field} is affine" + (f", {constants} constant" if constants else "")
        if size <= self.max_quadrature:
            why = f"{size}-dimensional integral" if form is None else "closed forms are switched off"
            return self.quadrature, f"adaptive quadrature: {why}"
        return self.monte_carlo, f"quasi-Monte-Carlo: a field of {size} is too large for quadrature"


AUTO = Moments()
ACCURATE = Moments(
    quadrature=Quadrature(tol=1e-11, report=1e-8, max_panels=400, tensor_tol=1e-8, tensor_nodes=5),
    monte_carlo=MonteCarlo(points=8192),
)
QUADRATURE = Moments(closed=False)
MONTE_CARLO = Moments(closed=False, max_quadrature=0)
_NAMED = {"auto": AUTO, "accurate": ACCURATE, "quadrature": QUADRATURE, "montecarlo": MONTE_CARLO}


def moments_named(moments: str | Moments) -> Moments:
    """The strategy with this name: "auto", "accurate", "quadrature" or "montecarlo"; a strategy is passed through."""
    if isinstance(moments, Moments):
        return moments
    if moments not in _NAMED:
        raise ValueError(f"moments={moments!r} is not known; use one of {sorted(_NAMED)} or an adfpp.Moments.")
    return _NAMED[moments]
