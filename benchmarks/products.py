"""Compares the projection of one row with sums and integrals on dense grids, for each family and rule.

Run as ``python -m benchmarks.products``; ``--write`` puts the table into docs/products-accuracy.md.
"""

import argparse
import itertools
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import special, stats

import adfpp
from adfpp.engine.families import ByLatent
from adfpp.engine.families.product.field_split import Splitting
from models import ising_perceptron, mixture_weights, unknown_noise, zero_inflated

PAGE = Path(__file__).parent.parent / "docs" / "products-accuracy.md"
Row = tuple[str, str, str, float, float]


def model_of(prior: Any, likelihood: Any) -> Any:
    """One parameter, and rows that are drawn given it."""

    def model(y: Any) -> None:
        theta = numpyro.sample("theta", prior)
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", likelihood(theta), obs=y)

    return model


def folded(model: Any, family: Any, **data: Any) -> Any:
    """The result of ADF on one row, and how the row's factor was integrated."""
    adf = adfpp.ADF(model, family=family)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adfpp.RowsMarked)
        return adf.run(jax.random.key(0), progress_bar=False, **data), adf.explain(**data).factors[0].why


def line_case(name: str, family: str, prior: Any, likelihood: Any, density: Any, y: float, unit: bool) -> Row:
    """One parameter, positive or in the unit interval, compared with a trapezoidal sum in its log or logit."""
    result, why = folded(model_of(prior, likelihood), {"theta": family}, y=np.array([y]))
    u = np.linspace(-30.0, 30.0, 400_001)
    s = special.expit(u) if unit else np.exp(u)
    jacobian = s * (1.0 - s) if unit else s
    with np.errstate(divide="ignore", invalid="ignore"):
        mass = np.nan_to_num(density(s, y) * jacobian)
    z = mass.sum() * (u[1] - u[0])
    part = result.posterior.family.parts[0].family
    expected = np.asarray(part.expected(result.state.belief.parts[0])).ravel()
    logs = {
        "beta": (u - np.logaddexp(0.0, u), -np.logaddexp(0.0, u)),
        "gamma": (u, -s),
        "inverse_gamma": (-u, -1.0 / s),
    }
    truth = np.array([np.sum(t * mass) / mass.sum() for t in logs[family]])
    return name, family, why, float(np.abs(expected - truth).max()), abs(result.log_evidence - np.log(z))


def coin(p: Any) -> Any:
    """A likelihood that is conjugate to Beta."""
    return dist.Bernoulli(probs=p)


def coin_of_root(p: Any) -> Any:
    """A likelihood that is not conjugate to Beta."""
    return dist.Bernoulli(probs=jnp.sqrt(p))


def student_of_scale(s: Any) -> Any:
    """A Student-t of unknown scale."""
    return dist.StudentT(4.0, 0.0, s)


def normal_of_variance(v: Any) -> Any:
    """A likelihood that is conjugate to InverseGamma."""
    return dist.Normal(0.0, jnp.sqrt(v))


def student_of_variance(v: Any) -> Any:
    """A Student-t of unknown variance."""
    return dist.StudentT(4.0, 0.0, jnp.sqrt(v))


def lines() -> list[Row]:
    """The lines of the cases with one parameter."""
    beta: Any = stats.beta(2.0, 3.0)
    gamma: Any = stats.gamma(2.0, scale=1 / 0.5)
    inverse: Any = stats.invgamma(3.0, scale=2.0)
    return [
        line_case(
            "coin",
            "beta",
            dist.Beta(2.0, 3.0),
            coin,
            lambda s, y: beta.pdf(s) * s**y * (1 - s) ** (1 - y),
            1,
            True,
        ),
        line_case(
            "coin, √p", "beta", dist.Beta(2.0, 3.0), coin_of_root, lambda s, y: beta.pdf(s) * np.sqrt(s), 1, True
        ),
        line_case(
            "counts",
            "gamma",
            dist.Gamma(2.0, 0.5),
            dist.Poisson,
            lambda s, y: gamma.pdf(s) * stats.poisson.pmf(y, s),
            7,
            False,
        ),
        line_case(
            "Student-t scale",
            "gamma",
            dist.Gamma(2.0, 0.5),
            student_of_scale,
            lambda s, y: gamma.pdf(s) * stats.t.pdf(y / s, 4.0) / s,
            1.5,
            False,
        ),
        line_case(
            "variance",
            "inverse_gamma",
            dist.InverseGamma(3.0, 2.0),
            normal_of_variance,
            lambda s, y: inverse.pdf(s) * stats.norm.pdf(y, 0.0, np.sqrt(s)),
            1.5,
            False,
        ),
        line_case(
            "Student-t variance",
            "inverse_gamma",
            dist.InverseGamma(3.0, 2.0),
            student_of_variance,
            lambda s, y: inverse.pdf(s) * stats.t.pdf(y / np.sqrt(s), 4.0) / np.sqrt(s),
            1.5,
            False,
        ),
    ]


def binary() -> list[Row]:
    """Cases with binary weights and probit noise 0.5: probabilities compared with enumeration."""
    rows = []
    for n in (10, 14):
        data, _ = ising_perceptron.simulate(jax.random.key(n), 1, num_features=n, noise=0.5)
        every = np.array(list(itertools.product([-1.0, 1.0], repeat=n)))
        logs = special.log_ndtr((2 * data["y"] - 1) * (every @ data["x"].T) / 0.5).sum(1)
        exact = special.softmax(logs) @ (every > 0)
        evidence = special.logsumexp(logs) - n * np.log(2.0)
        limits = (Splitting(), Splitting(states=1), Splitting(states=1, one_out=1, expanded=np.inf))
        for limit in limits:
            result, why = folded(ising_perceptron.model, ByLatent((), limit), **data)
            error = float(np.abs(np.asarray(result.posterior.mean()["sign"]) - exact).max())
            rows.append((f"binary weights, N = {n}", "bernoulli", why, error, abs(result.log_evidence - evidence)))
    return rows


def grid_sum(axes: list[np.ndarray], log_density: Any) -> tuple[list[np.ndarray], np.ndarray, float]:
    """A density on a dense grid: the points, the normalised weights, and the log of the integral."""
    points = list(np.meshgrid(*axes, indexing="ij"))
    logs = log_density(*points)
    volume = np.prod([a[1] - a[0] for a in axes])
    evidence = special.logsumexp(logs) + np.log(volume)
    return points, np.exp(logs - special.logsumexp(logs)), float(evidence)


def mixed() -> list[Row]:
    """Cases with latents of different families in one factor."""
    rows = []
    data, _ = unknown_noise.simulate(jax.random.key(3), 1, num_features=1)
    x, y = float(data["x"][0, 0]), float(data["y"][0])
    result, why = folded(unknown_noise.model, {"precision": "gamma"}, **data)
    (w, u), mass, evidence = grid_sum(
        [np.linspace(-16.0, 16.0, 4001), np.linspace(-14.0, 4.0, 1201)],
        lambda w, u: (
            stats.norm.logpdf(w, 0.0, 2.0)
            + stats.gamma.logpdf(np.exp(u), 2.0)
            + u
            + stats.norm.logpdf(y, x * w, np.exp(-0.5 * u))
        ),
    )
    mean, precision = (w * mass).sum(), (np.exp(u) * mass).sum()
    error = np.abs(np.asarray(result.state.belief.mean) - [mean, precision]).max()
    rows.append(("noise unknown", "full, gamma", why, float(error), abs(result.log_evidence - evidence)))
    result, why = folded(zero_inflated.model, {"gate": "beta", "rate": "gamma"}, y=np.array([0]))
    tail = (0.5 / 1.5) ** 2
    z = 0.5 + 0.5 * tail
    shape, rate = np.asarray(result.state.belief.parts[1]).ravel()
    error = abs(shape / rate - (2.0 + 0.5 * tail * 2.0 / 1.5) / z)
    rows.append(("zero inflation", "beta, gamma", why, float(error), abs(result.log_evidence - np.log(z))))
    result, why = folded(mixture_weights.model, {"weights": "dirichlet"}, y=np.array([0.7]))
    (_, a, b), mass, _ = grid_sum(
        [np.linspace(0.0005, 0.9995, 200), np.linspace(-10.0, 6.0, 321), np.linspace(-6.0, 10.0, 321)],
        lambda p, a, b: (
            stats.norm.logpdf(a, -2.0, 1.0)
            + stats.norm.logpdf(b, 2.0, 1.0)
            + np.log(p * stats.norm.pdf(0.7, a, 1.0) + (1 - p) * stats.norm.pdf(0.7, b, 1.0) + 1e-300)
        ),
    )
    truth = [(a * mass).sum(), (b * mass).sum()]
    evidence = np.log(0.5 * stats.norm.pdf(0.7, [-2.0, 2.0], np.sqrt(2.0)).sum())  # the grid of p is too coarse for it
    error = np.abs(np.asarray(result.posterior.mean()["mu"]) - truth).max()
    rows.append(("mixture", "dirichlet, full", why, float(error), abs(result.log_evidence - evidence)))
    return rows


def main() -> None:
    """Measures and prints; writes the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table into docs/products-accuracy.md")
    write = parser.parse_args().write
    jax.config.update("jax_enable_x64", True)
    table = ["| row | families | moments | error of the moments | error of log Z |", "|---|---|---|---|---|"]
    for name, family, why, error, log_z in [*lines(), *binary(), *mixed()]:
        table.append(f"| {name} | {family} | {why} | {error:.0e} | {log_z:.0e} |")
        print(table[-1])
    text = """# How exact a product's projections are

One row absorbed into its prior, float64, default settings, compared with sums over all states or over dense grids of
the same density. The error is that of the expected sufficient statistics (one parameter), of the probabilities (binary
weights), or of the means (several latents). Conjugate rows are exact to rounding.

Written by `python -m benchmarks.products --write`.

"""
    if write:
        PAGE.write_text(text + "\n".join(table) + "\n")


if __name__ == "__main__":
    main()
