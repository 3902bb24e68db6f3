"""How a model was understood: the result of ``explain``, which prints like the query plan of a database."""

from dataclasses import dataclass

from adfpp.engine.factor import Factor
from adfpp.engine.families import Family
from adfpp.learn.start import Prior
from adfpp.model import Program, stripped
from adfpp.model.sizes import SizedModel


@dataclass(frozen=True)
class LatentPlan:
    """How one latent is stored.

    Attributes:
        name: The latent.
        shape: The shape of its value.
        size: How many numbers of θ it takes.
        transform: The transform to its support, or "native space" if its values are stored as they are.
        family: The family that stores it.
        prior: How its prior was projected onto the family.
    """

    name: str
    shape: tuple[int, ...]
    size: int
    transform: str
    family: str
    prior: str


@dataclass(frozen=True)
class LocalLatentPlan:
    """How one local latent, a latent of the data plate, is integrated out.

    Attributes:
        name: The latent.
        shape: The shape of its value in one row.
        how: How it is integrated out.
    """

    name: str
    shape: tuple[int, ...]
    how: str


@dataclass(frozen=True)
class FactorPlan:
    """How a group of factors of the same kind is computed.

    Attributes:
        name: The observation, or for a prior factor the latent.
        count: How many factors the group has: in one row, or in the prior.
        field_size: How many numbers the field of each factor has.
        field: Which latents the field consists of.
        rule: The rule that computes the tilted moments.
        why: The reason for this rule, in words.
    """

    name: str
    count: int
    field_size: int
    field: str
    rule: str
    why: str


@dataclass(frozen=True)
class Explanation:
    """How a model was understood. It prints as a plan.

    Attributes:
        latents: The latents that all rows share.
        factors: The factors of one row.
        rows: The arguments that carry rows, and numbers of rows. It is empty if the whole call is one row.
        constants: The arguments that all rows share.
        family: The name of the family.
        size: The length of the flat vector θ.
        local: The latents of the data plate, which are integrated out row by row.
        priors: The prior factors, which are visited repeatedly. A latent has them if its prior depends on other
            latents, and under EP also if its prior is not Gaussian.
        sizes: What the model reads out of the values of the first data, such as a number of groups.
    """

    latents: tuple[LatentPlan, ...]
    factors: tuple[FactorPlan, ...]
    rows: tuple[str, ...]
    constants: tuple[str, ...]
    family: str
    size: int
    local: tuple[LocalLatentPlan, ...] = ()
    priors: tuple[FactorPlan, ...] = ()
    sizes: str = ""

    def __str__(self) -> str:
        """The plan as text."""
        is_product = self.family.startswith("product")
        text = [
            f"product of families over latents, {self.size} numbers"
            if is_product
            else f"{self.family} Gaussian over {self.size} unconstrained numbers"
        ]
        text += ["", "latents"]
        header = ["latent", "shape", *["family"] * is_product, "transform", "prior"]
        body = [[v.name, str(v.shape), *[v.family] * is_product, v.transform, v.prior] for v in self.latents]
        text += table(header, body)
        if self.local:
            text += ["", "local latents, integrated out row by row"]
            text += table(["latent", "shape in a row", "how"], [[v.name, str(v.shape), v.how] for v in self.local])
        text += ["", "factors of a row"]
        text += _factor_table("observation", self.factors)
        if self.priors:
            text += ["", "prior factors, visited repeatedly"]
            text += _factor_table("latent", self.priors)
        text += [
            "",
            f"rows:      {', '.join(self.rows) or 'none, all data of a call are one row'}",
            f"constants: {', '.join(self.constants) or 'none'}",
        ]
        if self.sizes:
            text += [f"sizes:     {self.sizes}, read out of the data of the first call"]
        return "\n".join(text)

    __repr__ = __str__


def table(header: list[str], body: list[list[str]]) -> list[str]:
    """The lines of a table with aligned columns."""
    widths = [max(len(r[i]) for r in [header, *body]) for i in range(len(header))]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in [header, *body]]


def _factor_table(first: str, factors: tuple[FactorPlan, ...]) -> list[str]:
    """A table of factors; ``first`` is the heading of the column of names."""
    header = [first, "factors", "field size", "field", "moments"]
    return table(header, [[f.name, str(f.count), str(f.field_size), f.field, f.why] for f in factors])


def explanation(program: Program, prior: Prior) -> Explanation:
    """The plan of a program with a prior."""
    family, plans = program.family, []
    for latent in program.latents:
        how = next((b.how for b in prior.blocks if latent.where.start in b.where), "") if latent.size else "empty"
        transform = type(stripped(latent.transform)).__name__.removesuffix("Transform").lower()
        transform = transform if latent.native is None else "native space"
        stored = family.family_of(latent.name) if latent.size else family.name
        how = how or "prior factors, see below"
        plans.append(LatentPlan(latent.name, latent.shape, latent.size, transform, stored, how))
    fixed = tuple(dict.fromkeys((*program.layout.named("shared"), *program.layout.named("fixed"))))
    return Explanation(
        tuple(plans),
        tuple(_plan_of(family, g) for g in program.factors),
        program.layout.carriers,
        fixed,
        family.name,
        program.size,
        tuple(LocalLatentPlan(v.name, v.shape, v.how) for v in program.local),
        tuple(_plan_of(family, g.factors) for g, _ in prior.factors),
        program.model.in_words if isinstance(program.model, SizedModel) else "",
    )


def _plan_of(family: Family, factor: Factor) -> FactorPlan:
    rule, why = family.describe(factor)
    return FactorPlan(factor.name, factor.count, factor.field_size, factor.field, rule, why)
