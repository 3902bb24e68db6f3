"""Measures the accuracy of one-dimensional tilted moments, on cavities from very narrow to very wide.

Run as ``python -m benchmarks.accuracy``; ``--write`` puts the tables into docs/accuracy.md, ``--misses``
lists the cells that miss their bound. The references come from tests/oracles.py.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import betaln
from scipy.special import gammaln, log_ndtr

from adfpp.distributions import Probit
from adfpp.engine.tilt import ACCURATE, AUTO, Quadrature
from adfpp.engine.trace import scalar_factor
from tests.oracles import Moments, probit_moments, tilted_moments

PAGE = Path(__file__).parent.parent / "docs" / "accuracy.md"
WIDTHS = (1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1e3)  # sd of the cavity in widths of the likelihood
DISTANCES = (
    0,
    1,
    -1,
    3,
    -3,
    10,
    -10,
    30,
    -30,
)  # distances of the cavity's mean from the likelihood's location, in cavity sds
FAR = (10, -10, 30, -30)  # the same in widths of the likelihood, for cavities that are narrower than it


@dataclass(frozen=True)
class Likelihood:
    """One factor as a function of its field: for the package, and independently for the reference.

    Attributes:
        name: The name in the tables.
        distribution: From the field to the distribution of the observation.
        value: The observation.
        log_factor: The log-likelihood of the observation in NumPy's longest floats.
        location: The mode of the likelihood, or 0 if it has none.
        width: The width at the mode, or 1.
        marks: The points where the reference splits its integral.
        narrowest: The smallest distance over which the likelihood changes.
        log_concave: Whether the likelihood is log-concave; others have looser bounds.
    """

    name: str
    distribution: Callable[[Any], dist.Distribution]
    value: float
    log_factor: Callable[[np.ndarray], np.ndarray]
    location: float = 0.0
    width: float = 1.0
    marks: tuple[float, ...] = field(default=())
    narrowest: float | None = None
    log_concave: bool = True

    @property
    def bounds(self) -> tuple[float, float]:
        """The largest error that is allowed for the default and for the accurate rule."""
        return (1e-6, 1e-8) if self.log_concave else (1e-4, 1e-6)

    def reference(self, mean: float, sd: float) -> Moments:
        """The true tilted moments for one cavity."""
        if self.name == "probit":
            return probit_moments(int(self.value), mean, sd)
        marks = (self.location, *self.marks)
        return tilted_moments(self.log_factor, mean, sd, marks, self.narrowest or self.width)


class Cell(NamedTuple):
    """One cavity: its mean and sd, and how they were chosen."""

    mean: float
    sd: float
    width: float  # sd of the cavity in widths of the likelihood
    distance: float  # distance of its mean from the likelihood, in cavity sds
    far: bool  # whether the distance was chosen in widths of the likelihood


class Errors(NamedTuple):
    """Errors of one rule on the cells of one likelihood, each ``(cells,)``."""

    mean: np.ndarray  # in tilted sds
    variance: np.ndarray  # relative
    log_z: np.ndarray  # absolute
    estimate: np.ndarray  # the rule's own estimate of its error

    @property
    def worst(self) -> np.ndarray:
        """The largest of the three errors, with infinity for NaN."""
        stacked = np.stack([self.mean, self.variance, self.log_z])
        return np.where(np.isnan(stacked), np.inf, stacked).max(0)


# ------------------------------------------------------------------------------------------------ the battery


def _log_gauss(x: np.ndarray, sd: float) -> np.ndarray:
    z = x / np.longdouble(sd)
    return -z * z / 2 - np.log(np.longdouble(sd)) - np.log(2 * np.longdouble(np.pi)) / 2


def _softplus(h: np.ndarray) -> np.ndarray:
    return np.logaddexp(np.longdouble(0), h)


def _poisson(y: int) -> Likelihood:
    constant = float(gammaln(y + 1))
    return Likelihood(
        f"Poisson-log, y={y}",
        lambda h: dist.Poisson(jnp.exp(h)),
        y,
        lambda h: y * h - np.exp(h) - constant,
        location=math.log(y) if y else 0.0,
        width=1 / math.sqrt(y) if y else 1.0,
    )


def _mixture(name: str, weights: list[float], offsets: list[float], scales: list[float], y: float) -> Likelihood:
    def distribution(h: Any) -> dist.Distribution:
        parts = dist.Normal(h + jnp.asarray(offsets), jnp.asarray(scales))
        return dist.MixtureSameFamily(dist.Categorical(probs=jnp.asarray(weights)), parts)

    def log_factor(h: np.ndarray) -> np.ndarray:
        parts = [
            np.log(np.longdouble(w)) + _log_gauss(y - h - np.longdouble(c), s)
            for w, c, s in zip(weights, offsets, scales, strict=True)
        ]
        return np.logaddexp(*parts)

    return Likelihood(
        name,
        distribution,
        y,
        log_factor,
        location=y,
        width=scales[0],
        marks=tuple(y - c for c in offsets),
        narrowest=min(scales),
        log_concave=False,
    )


def _negative_binomial_constant() -> float:
    """Computed with JAX's betaln, as in NumPyro: its error of 1.3e-6 is not an error of the integral."""
    return -float(betaln(3.0, 8.0)) - math.log(10.0)


def _battery() -> list[Likelihood]:
    """The likelihoods that users write most often, and some that are difficult to integrate."""
    log_choose = float(gammaln(21) - gammaln(4) - gammaln(18))
    student_constant = float(gammaln(2) - gammaln(1.5) - 0.5 * math.log(3 * math.pi) - math.log(0.3))
    log3 = np.log(np.longdouble(3))
    return [
        Likelihood("logit", lambda h: dist.Bernoulli(logits=h), 1.0, lambda h: -_softplus(-h)),
        Likelihood("probit", Probit, 1.0, lambda h: log_ndtr(h.astype(float))),
        _poisson(0),
        _poisson(1),
        _poisson(50),
        Likelihood(
            "binomial, 3 of 20",
            lambda h: dist.Binomial(20, logits=h),
            3.0,
            lambda h: log_choose + 3 * h - 20 * _softplus(h),
            location=math.log(3 / 17),
            width=1 / math.sqrt(20 * 0.15 * 0.85),
        ),
        Likelihood(
            "negative binomial, y=7",
            lambda h: dist.NegativeBinomial2(jnp.exp(h), 3.0),
            7.0,
            lambda h: _negative_binomial_constant() + 3 * log3 + 7 * h - 10 * np.logaddexp(log3, h),
            location=math.log(7.0),
            width=1 / math.sqrt(2.1),
        ),
        Likelihood(
            "Gamma-log, y=1.5",
            lambda h: dist.Gamma(2.0, 2.0 / jnp.exp(h)),
            1.5,
            lambda h: math.log(4 * 1.5) - 2 * h - 3 * np.exp(-h),
            location=math.log(1.5),
            width=1 / math.sqrt(2.0),
        ),
        Likelihood(
            "Gaussian",
            lambda h: dist.Normal(h, 0.3),
            0.2,
            lambda h: _log_gauss(np.longdouble(0.2) - h, 0.3),
            0.2,
            0.3,
        ),
        Likelihood(
            "Laplace",
            lambda h: dist.Laplace(h, 0.5),
            0.2,
            lambda h: -2 * np.abs(np.longdouble(0.2) - h),
            0.2,
            0.5,
        ),
        Likelihood(
            "Student-t, 3 df",
            lambda h: dist.StudentT(3.0, h, 0.3),
            0.2,
            lambda h: student_constant - 2 * np.log1p(((np.longdouble(0.2) - h) / np.longdouble(0.3)) ** 2 / 3),
            0.2,
            0.3,
            log_concave=False,
        ),
        _mixture("mixture, ±1", [0.5, 0.5], [-1.0, 1.0], [0.3, 0.3], 0.2),
        _mixture("mixture, spike aside", [0.5, 0.5], [0.0, 3.0], [1.0, 0.02], 0.2),
        _mixture("mixture, outliers", [0.95, 0.05], [0.0, 0.0], [0.1, 10.0], 0.2),
    ]


BATTERY = _battery()


def cells(likelihood: Likelihood) -> list[Cell]:
    """The cavities for which a likelihood is integrated."""
    found = []
    for width in WIDTHS:
        sd = width * likelihood.width
        distances = [(float(d), False) for d in DISTANCES]
        distances += [(d / width, True) for d in FAR if width < 1]
        found += [Cell(likelihood.location + d * sd, sd, width, d, far) for d, far in distances]
    return found


# ------------------------------------------------------------------------------------------------ measurement


def references(likelihood: Likelihood) -> Moments:
    """The true moments on every cell, each ``(cells,)``."""
    return Moments(*np.array([likelihood.reference(c.mean, c.sd) for c in cells(likelihood)]).T)


def errors(likelihood: Likelihood, rule: Quadrature, truth: Moments) -> Errors:
    """The errors of a rule on every cell."""

    def log_factor(h: jax.Array) -> Any:
        return likelihood.distribution(h[0]).log_prob(jnp.asarray(likelihood.value))

    prepared, marks = scalar_factor(log_factor, jnp.zeros(()).dtype)

    @jax.jit
    def moments(cavities: tuple[jax.Array, jax.Array]) -> Any:
        return jax.lax.map(lambda c: rule(prepared, c[0][None], c[1][None, None], marks), cavities)

    tried = cells(likelihood)
    out = moments((jnp.asarray([c.mean for c in tried]), jnp.asarray([c.sd for c in tried])))
    shift, root = np.asarray(out.shift)[:, 0], np.asarray(out.root)[:, 0, 0]
    return Errors(
        np.abs(shift - truth.shift) / truth.root,
        np.abs((root / truth.root) ** 2 - 1),
        np.abs(np.asarray(out.log_z) - truth.log_z),
        np.asarray(out.error),
    )


class Line(NamedTuple):
    """One row of a table: one likelihood under one rule, on some of its cells."""

    name: str
    bound: float
    cells: list[Cell]
    errors: Errors
    flagged: np.ndarray

    @property
    def within(self) -> np.ndarray:
        """The cells whose errors are within the bound."""
        return self.errors.worst <= self.bound

    @property
    def honest(self) -> np.ndarray:
        """The cells whose estimate is at least the true error, or NaN, which claims nothing."""
        return ~(self.errors.estimate < self.errors.worst)

    @property
    def unflagged(self) -> np.ndarray:
        """The cells that miss the bound without being marked."""
        return ~self.within & ~self.flagged


def lines(rule: Quadrature, which: int, truths: list[Moments], far: bool) -> list[Line]:
    """The lines of a rule on all likelihoods; ``which`` is the rule's place in ``Likelihood.bounds``."""
    found = []
    for likelihood, truth in zip(BATTERY, truths, strict=True):
        tried = cells(likelihood)
        chosen = np.array([c.far == far for c in tried])
        kept = Errors(*(e[chosen] for e in errors(likelihood, rule, truth)))
        flagged = ~(kept.estimate <= rule.reported(jnp.dtype("float64")))
        bound = likelihood.bounds[which]
        found.append(Line(likelihood.name, bound, [c for c in tried if c.far == far], kept, flagged))
    return found


def percent(hits: np.ndarray) -> str:
    """A share in per cent, rounded down, so that 100 % means all."""
    return f"{math.floor(1000 * np.mean(hits)) / 10:g} %"


def table(found: list[Line]) -> str:
    """The lines as a Markdown table."""
    text = (
        "| likelihood | cells | bound | within it | worst error: mean | variance | log Z | estimate ≥ error "
        "| marked | misses not marked |\n|---|---|---|---|---|---|---|---|---|---|\n"
    )
    for line in found:
        worst = " ".join(f"| {np.max(e):.0e}" for e in line.errors[:3])
        text += f"| {line.name} | {len(line.cells)} | {line.bound:.0e} | {percent(line.within)} {worst} "
        text += f"| {percent(line.honest)} | {percent(line.flagged)} | {int(line.unflagged.sum())} |\n"
    within, honest, flagged, unflagged = (
        np.concatenate(part)
        for part in zip(*((x.within, x.honest, x.flagged, x.unflagged) for x in found), strict=True)
    )
    text += f"| **all** | {within.size} | | {percent(within)} | | | | {percent(honest)} | {percent(flagged)} "
    return text + f"| {int(unflagged.sum())} |\n"


def misses(found: list[Line]) -> str:
    """The cells outside their bound, or with an estimate below the error, one on each line."""
    text = ""
    for line in found:
        for i, cell in enumerate(line.cells):
            if line.within[i] and line.honest[i]:
                continue
            mean, variance, log_z, estimate = (e[i] for e in line.errors)
            text += (
                f"{line.name:24s} width {cell.width:<6g} distance {cell.distance:<8g} mean {mean:.1e} "
                f"variance {variance:.1e} log Z {log_z:.1e} estimate {estimate:.1e}"
                f"{'' if line.within[i] else '  MISS'}{'' if line.honest[i] else '  UNDER'}"
                f"{'  (marked)' if line.flagged[i] else ''}\n"
            )
    return text


# -------------------------------------------------------------------------------------------------- the page

_PAGE = """# Accuracy of the tilted moments

Made by `python -m benchmarks.accuracy --write`.

Where a likelihood has no closed form, each update integrates one row's likelihood against the belief about
its field. Here that integral is compared with references that share no code with it: Gauss-Legendre panels in
extended precision, bisected until their halves agree, and for the probit its exact formula in 80 digits.

Every likelihood is tried on cavities whose sd is {widths}
times the likelihood's own width, with their means {distances} cavity sds away from it on either side.
The width and place of a likelihood are those of its peak as a function of the field; 1 and 0 if it has
none. Errors are of the mean in tilted sds, of the variance relative, of log Z absolute. The bound is the
error that a rule should keep to: the looser ones are for likelihoods that are not log-concave.

"Estimate ≥ error" is the share of cells on which the rule's own error estimate is at least the largest of
the three errors. "Marked" are the cells whose estimate is above the rule's `report`; a run gives such rows
the status `INACCURATE`. The last column counts the cells that miss the bound without being marked.

The closed forms (probit, Rosenblatt, Gaussian) are exact to rounding, and the tests hold them to that; the
probit and Gaussian lines below are those of the quadrature. The negative binomial's reference takes its
constant from JAX's `betaln`, as NumPyro does, which is off by 1.3e-6 there.

## The default rule

{auto}
## The accurate rule

`moments="accurate"`.

{accurate}
## Surprises beyond thirty sds

Cavities narrower than the likelihood, 10 and 30 widths *of the likelihood* away: up to 30,000 cavity sds.
Where the log-likelihood falls exponentially (Poisson, Gamma) the row then contradicts the belief so far that
the tilt lies thousands of cavity sds away; what counts there is that it is marked.

The default rule:

{far_auto}
The accurate rule:

{far_accurate}"""


def main() -> None:
    """Measures both rules and prints or writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md instead of printing it")
    parser.add_argument("--misses", action="store_true", help="list the cells outside their bound or estimate")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    truths = [references(likelihood) for likelihood in BATTERY]
    default, precise = AUTO.quadrature, ACCURATE.quadrature
    assert isinstance(default, Quadrature) and isinstance(precise, Quadrature)
    auto, far_auto = (lines(default, 0, truths, far) for far in (False, True))
    accurate, far_accurate = (lines(precise, 1, truths, far) for far in (False, True))
    page = _PAGE.format(
        widths=", ".join(f"{w:g}" for w in WIDTHS),
        distances=", ".join(f"{d:g}" for d in DISTANCES if d >= 0),
        auto=table(auto),
        accurate=table(accurate),
        far_auto=table(far_auto),
        far_accurate=table(far_accurate),
    )
    if args.write:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page, encoding="utf-8")
    else:
        print(page)
    if args.misses:
        print(f"default rule\n{misses(auto + far_auto)}\naccurate rule\n{misses(accurate + far_accurate)}")


if __name__ == "__main__":
    main()
