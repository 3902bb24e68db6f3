"""How a model was understood, like a query plan."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adfpp.families import Family
from adfpp.field import depends_on
from adfpp.model import Program, stripped
from adfpp.prior import Block


@dataclass(frozen=True)
class SitePlan:
    """A latent site: its name, shape, transform, family, and how its prior was projected."""

    name: str
    shape: tuple[int, ...]
    size: int
    transform: str
    family: str
    prior: str


@dataclass(frozen=True)
class FactorPlan:
    """A factor: its site, how many alike a row has, the size and make of its field, the moment rule and why."""

    name: str
    count: int
    field_size: int
    field: str
    rule: str
    why: str


@dataclass(frozen=True)
class Explanation:
    """How a model was understood; prints as a plan.

    Attributes:
        sites: Latent sites.
        factors: A row's factors.
        rows: Arguments that carry rows.
        constants: Arguments that every row shares.
        family: The family's name.
        size: Length of the flat θ.
        untouched: Latent sites that no row depends on directly: they stay at their prior.
    """

    sites: tuple[SitePlan, ...]
    factors: tuple[FactorPlan, ...]
    rows: tuple[str, ...]
    constants: tuple[str, ...]
    family: str
    size: int
    untouched: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The plan as text."""
        lines = [f"{self.family} Gaussian over {self.size} unconstrained numbers"]
        lines += ["", "latent sites"]
        lines += _table(
            ["site", "shape", "transform", "prior"],
            [[s.name, str(s.shape), s.transform, s.prior] for s in self.sites],
        )
        lines += ["", "factors of a row"]
        lines += _table(
            ["site", "factors", "field", "made of", "moments"],
            [[f.name, str(f.count), str(f.field_size), f.field, f.why] for f in self.factors],
        )
        lines += [
            "",
            f"rows:      {', '.join(self.rows)}",
            f"constants: {', '.join(self.constants) or 'none'}",
        ]
        if self.untouched:
            lines += ["", *advice(self.untouched)]
        return "\n".join(lines)

    __repr__ = __str__


def advice(untouched: Sequence[str]) -> list[str]:
    """What to do about latent sites that no row depends on directly."""
    many = len(untouched) > 1
    return [
        f"NOT LEARNED: {', '.join(untouched)}. No row depends on {'them' if many else 'it'} directly, only through the "
        "prior of other sites,",
        f"so {'they stay' if many else 'it stays'} at the prior. In a hierarchy, draw z from N(0, 1) and write "
        "mu + tau * z[group] in the likelihood.",
    ]


def untouched_sites(program: Program) -> tuple[str, ...]:
    """Latent sites that no row's likelihood depends on, but through the priors of others."""
    touched = np.zeros(program.size, bool)
    for output in program.trace.outputs:
        touched |= depends_on(program.trace, output)
    return tuple(s.name for s in program.sites if s.size and not touched[s.where].any())


def _table(header: list[str], body: list[list[str]]) -> list[str]:
    widths = [max(len(r[i]) for r in [header, *body]) for i in range(len(header))]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in [header, *body]]


def explanation(program: Program, family: Family, blocks: list[Block]) -> Explanation:
    """The plan of a program."""
    sites = []
    for site in program.sites:
        how = next((b.how for b in blocks if site.where.start in b.where), "given") if site.size else "empty"
        name = type(stripped(site.transform)).__name__.removesuffix("Transform")
        sites.append(SitePlan(site.name, site.shape, site.size, name.lower(), family.name, how))
    factors = tuple(
        FactorPlan(g.name, g.count, g.field_size, g.field, type(g.rule).__name__, g.why) for g in program.factors
    )
    fixed = tuple(dict.fromkeys((*program.layout.named("shared"), *program.layout.named("fixed"))))
    rows, untouched = program.layout.named("row"), untouched_sites(program)
    return Explanation(tuple(sites), factors, rows, fixed, family.name, program.size, untouched)
