"""How variational message passing understands a model: the result of ``VMP.explain``."""

from dataclasses import dataclass

import numpy as np

from adfpp.learn.explain import LocalLatentPlan, table
from adfpp.model import Program


@dataclass(frozen=True)
class PartPlan:
    """One part of the approximation.

    Attributes:
        latents: The latents that it stores.
        family: The family that stores them.
        blocks: The number of independent blocks or components.
        numbers: The coordinates of one of them.
        points: The number of points that stand for the part in expectations.
        residual: How far the log joint is from being linear in its statistics, the other parts being fixed.
    """

    latents: tuple[str, ...]
    family: str
    blocks: int
    numbers: int
    points: int
    residual: float


@dataclass(frozen=True)
class VMPExplanation:
    """How a model was understood. It prints as a plan.

    Attributes:
        parts: The parts of the approximation. They are independent of each other.
        local: The latents of the data plate, which are one part for each row.
        local_residual: As ``PartPlan.residual``, for the local latents.
        combinations: How many combinations of discrete values a row has.
        rows: The arguments that carry rows.
        constants: The arguments that all rows share.
        limit: The largest residual that rounding errors explain.
    """

    parts: tuple[PartPlan, ...]
    local: tuple[LocalLatentPlan, ...]
    local_residual: float
    combinations: int
    rows: tuple[str, ...]
    constants: tuple[str, ...]
    limit: float

    @property
    def conjugate(self) -> bool:
        """Whether the model is conjugate in all parts and in the local latents."""
        return all(r <= self.limit for r in [*(p.residual for p in self.parts), self.local_residual])

    def __str__(self) -> str:
        """The plan as text."""
        text = [f"product of {len(self.parts)} independent parts{', and one for each row' * bool(self.local)}"]
        header = ["part", "family", "blocks", "numbers", "points", "conjugate"]
        body = [
            [", ".join(p.latents), p.family, str(p.blocks), str(p.numbers), str(p.points), self._worded(p.residual)]
            for p in self.parts
        ]
        text += ["", "parts", *table(header, body)]
        if self.local:
            text += ["", f"local latents, one part for each row ({self._worded(self.local_residual)})"]
            text += table(["latent", "shape in a row", "how"], [[v.name, str(v.shape), v.how] for v in self.local])
        text += ["", f"rows:      {', '.join(self.rows) or 'none, all data of a call are one row'}"]
        return "\n".join([*text, f"constants: {', '.join(self.constants) or 'none'}"])

    __repr__ = __str__

    def _worded(self, residual: float) -> str:
        return f"{'yes' if residual <= self.limit else 'NO'}, residual {residual:.1g}"


def vmp_explanation(program: Program, residuals: np.ndarray, limit: float) -> VMPExplanation:
    """The plan of a program.

    Args:
        program: The model as it was read.
        residuals: For each part, and at the end for the local latents, the residual of linearity.
        limit: The largest residual that rounding errors explain.
    """
    assert program.conjugate is not None
    joint = program.conjugate.joint
    parts = tuple(
        PartPlan(part.names, part.family.name, part.count, len(part.where) // part.count, part.point_count, float(r))
        for part, r in zip(joint.parts, residuals[:-1], strict=True)
    )
    discrete = any(s.support is not None for s in program.local)
    given = "Gaussian given the discrete latents" if discrete else "Gaussian"
    local = tuple(
        LocalLatentPlan(s.name, s.shape, given if s.support is None else f"enumerated: {len(s.support)} values")
        for s in program.local
    )
    constants = tuple(dict.fromkeys((*program.layout.named("shared"), *program.layout.named("fixed"))))
    return VMPExplanation(
        parts, local, float(residuals[-1]), len(joint.combinations), program.layout.carriers, constants, limit
    )
