"""How a model was understood, like a query plan."""

from dataclasses import dataclass

from adfpp.engine.factor import Factor
from adfpp.engine.families import Family
from adfpp.learn.start import Prior
from adfpp.model import Program, stripped


@dataclass(frozen=True)
class LatentPlan:
    """A latent site: its name, shape, transform, family, and how its prior was projected."""

    name: str
    shape: tuple[int, ...]
    size: int
    transform: str
    family: str
    prior: str


@dataclass(frozen=True)
class LocalLatentPlan:
    """A latent site of the data plate: its name, its shape in one row, and how it is integrated out."""

    name: str
    shape: tuple[int, ...]
    how: str


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
        latents: The latents.
        factors: A row's factors.
        rows: Arguments that carry rows.
        constants: Arguments that every row shares.
        family: The family's name.
        size: Length of the flat θ.
        local: Latent sites of the data plate, which are integrated out row by row.
        priors: The prior's factors: of sites whose prior depends on others, or is revisited because it is no Gaussian.
    """

    latents: tuple[LatentPlan, ...]
    factors: tuple[FactorPlan, ...]
    rows: tuple[str, ...]
    constants: tuple[str, ...]
    family: str
    size: int
    local: tuple[LocalLatentPlan, ...] = ()
    priors: tuple[FactorPlan, ...] = ()

    def __str__(self) -> str:
        """The plan as text."""
        held = self.family.startswith("product")
        lines = [
            f"product over sites, {self.size} numbers"
            if held
            else f"{self.family} Gaussian over {self.size} unconstrained numbers"
        ]
        lines += ["", "latent sites"]
        header = ["site", "shape", *["family"] * held, "transform", "prior"]
        body = [[s.name, str(s.shape), *[s.family] * held, s.transform, s.prior] for s in self.latents]
        lines += _table(header, body)
        if self.local:
            lines += ["", "local latents, integrated out row by row"]
            lines += _table(["site", "shape in a row", "how"], [[s.name, str(s.shape), s.how] for s in self.local])
        header = ["site", "factors", "field", "made of", "moments"]
        lines += ["", "factors of a row"]
        lines += _table(header, [[f.name, str(f.count), str(f.field_size), f.field, f.why] for f in self.factors])
        if self.priors:
            lines += ["", "factors of the prior, visited again and again"]
            lines += _table(header, [[f.name, str(f.count), str(f.field_size), f.field, f.why] for f in self.priors])
        lines += [
            "",
            f"rows:      {', '.join(self.rows)}",
            f"constants: {', '.join(self.constants) or 'none'}",
        ]
        return "\n".join(lines)

    __repr__ = __str__


def _table(header: list[str], body: list[list[str]]) -> list[str]:
    widths = [max(len(r[i]) for r in [header, *body]) for i in range(len(header))]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in [header, *body]]


def explanation(program: Program, prior: Prior) -> Explanation:
    """The plan of a program."""
    family, sites = program.family, []
    for site in program.latents:
        how = next((b.how for b in prior.blocks if site.where.start in b.where), "") if site.size else "empty"
        name = type(stripped(site.transform)).__name__.removesuffix("Transform").lower()
        name = name if site.native is None else "own space"
        held = family.family_of(site.name) if site.size else family.name
        sites.append(LatentPlan(site.name, site.shape, site.size, name, held, how or "factors, see below"))
    fixed = tuple(dict.fromkeys((*program.layout.named("shared"), *program.layout.named("fixed"))))
    return Explanation(
        tuple(sites),
        tuple(_plan_of(family, g) for g in program.factors),
        program.layout.named("row"),
        fixed,
        family.name,
        program.size,
        tuple(LocalLatentPlan(s.name, s.shape, s.how) for s in program.local),
        tuple(_plan_of(family, g.factors) for g, _ in prior.factors),
    )


def _plan_of(family: Family, factor: Factor) -> FactorPlan:
    rule, why = family.describe(factor)
    return FactorPlan(factor.name, factor.count, factor.field_size, factor.field, rule, why)
