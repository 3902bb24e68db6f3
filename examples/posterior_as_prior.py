"""Posterior as prior: one clinic starts from the posterior of another, although it measures something else.

    python examples/posterior_as_prior.py [--out DIR]

Clinic A measures how far diabetes has progressed in a year; clinic B records only whether it has progressed more than
on average. Their two models have the same latents. The posterior of the first model, with its correlations, is the
prior of the second. Clinic A passes it on as a file, and no row leaves clinic A. The script shows that the result
equals one pass over the pooled rows, and prints its error against NUTS on these rows. It also shows the error if clinic
A passes on only a mean and a standard deviation of each coefficient. It draws the coefficients by all methods.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
from matplotlib.patches import Ellipse
from numpyro import handlers
from numpyro.infer import MCMC, NUTS
from sklearn.datasets import load_diabetes

import adfpp
from adfpp.distributions import Probit

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NOISE = 0.7  # scatter of the progression about its mean, taken as known, in units of the progression's sd


def expected(x: Any) -> Any:
    """The mean of the progression, which both clinics learn."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    return x @ w


def measured(x: Any, y: Any = None) -> None:
    """Clinic A: the progression itself."""
    mean = expected(x)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(mean, NOISE), obs=y)


def judged(x: Any, worse: Any = None) -> None:
    """Clinic B: whether the progression is above its average, 0."""
    mean = expected(x)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("worse", Probit(mean, NOISE), obs=worse)


def pooled(x: Any, exact: Any, y: Any = None, worse: Any = None) -> None:
    """All rows of both clinics in one model; `exact` is true where the progression itself was measured."""
    mean = expected(x)
    with numpyro.plate("rows", x.shape[0]):
        with handlers.mask(mask=exact):
            numpyro.sample("y", dist.Normal(mean, NOISE), obs=y)
        with handlers.mask(mask=~exact):
            numpyro.sample("worse", Probit(mean, NOISE), obs=worse)


def load() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The diabetes data, columns and progression standardised, rows in a fixed random order."""
    data: Any = load_diabetes()
    x = (data.data - data.data.mean(0)) / data.data.std(0)
    y = (data.target - data.target.mean()) / data.target.std()
    order = np.random.default_rng(1).permutation(len(y))
    return x[order], y[order], list(data.feature_names)


def ellipse(mean: np.ndarray, covariance: np.ndarray, **style: Any) -> Ellipse:
    """The ellipse on which a Gaussian in the plane is two sds from its mean."""
    values, vectors = np.linalg.eigh(covariance)
    angle = np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
    return Ellipse((mean[0], mean[1]), 4 * np.sqrt(values[1]), 4 * np.sqrt(values[0]), angle=angle, fill=False, **style)


def picture(path: Path, posteriors: dict[str, adfpp.Posterior], reference: np.ndarray, names: list[str]) -> None:
    """Left: two correlated coefficients. Right: all of them, mean ± sd."""
    styles = (("0.45", ":"), ("C0", "-"), ("C1", "--"))
    figure, (plane, forest) = plt.subplots(1, 2, figsize=(12, 5.2), constrained_layout=True)
    pair = [names.index("s1"), names.index("s2")]
    plane.scatter(*reference[:, pair].T, s=4, color="0.75", lw=0, label="NUTS, pooled rows of A and B: draws")
    for (name, post), (colour, line) in zip(posteriors.items(), styles, strict=True):
        gaussian: Any = post.distribution
        mean, covariance = np.asarray(gaussian.mean), np.asarray(gaussian.covariance_matrix)
        shape = ellipse(mean[pair], covariance[np.ix_(pair, pair)], color=colour, ls=line, lw=2, label=name)
        plane.add_patch(shape)
        plane.plot(*mean[pair], "+", color=colour, ms=9, mew=2)
    plane.set(xlabel="coefficient of s1 (total cholesterol)", ylabel="coefficient of s2 (LDL cholesterol)")
    plane.set_title("Two coefficients that A leaves strongly correlated (ellipses: 2 sd)", fontsize=10)
    plane.autoscale_view()
    low, high = plane.get_ylim()
    plane.set_ylim(low, high + 0.28 * (high - low))
    plane.legend(fontsize=8, loc="upper right", framealpha=1)

    places = np.arange(len(names))
    forest.bar(
        places,
        2 * reference.std(0),
        0.8,
        reference.mean(0) - reference.std(0),
        color="0.88",
        label="NUTS, pooled rows (others: colours as on the left)",
    )
    for k, (post, (colour, _)) in enumerate(zip(posteriors.values(), styles, strict=True)):
        mean, sd = np.asarray(post.mean()["w"]), np.asarray(post.sd()["w"])
        forest.errorbar(places + 0.25 * (k - 1), mean, sd, fmt="o", ms=4, color=colour)
    forest.axhline(0, color="0.6", lw=0.8)
    forest.set_xticks(places, names)
    forest.set(xlabel="column of the diabetes data, standardised", ylabel="sds of progression for one sd of the column")
    forest.set_title("All coefficients (mean ± sd)", fontsize=10)
    forest.legend(fontsize=8, loc="upper left")
    figure.suptitle(
        "Posterior as prior: clinic A measures the progression, clinic B only records whether it is above average"
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Runs the example."""
    parser = argparse.ArgumentParser(description="The posterior of one data set and model as the prior of the next.")
    parser.add_argument("--out", type=Path, default=Path("example_output"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    x, y, names = load()
    worse = (y > 0).astype(int)
    exact = np.arange(len(y)) < 150
    key = jax.random.key(0)

    file = options.out / "clinic_a.npz"
    clinic_a = adfpp.ADF(measured)
    adfpp.save(file, clinic_a, clinic_a.run(key, x[exact], y=y[exact], progress_bar=False).state)

    clinic_b = adfpp.ADF(judged)
    x_b, worse_b = x[~exact], worse[~exact]
    reader = adfpp.ADF(measured)
    # load needs the arguments of A's model, but reads only their shapes: clinic B has no measured y
    after_a = reader.get_posterior(adfpp.load(file, reader, x_b, y=np.zeros(len(x_b))).state)
    chained = clinic_b.get_posterior(clinic_b.run(key, x_b, worse=worse_b, prior=after_a, progress_bar=False))

    alone = {"w": dist.Normal(after_a.mean()["w"], after_a.sd()["w"]).to_event(1)}
    by_hand = clinic_b.get_posterior(clinic_b.run(key, x_b, worse=worse_b, prior=alone, progress_bar=False))

    both = adfpp.ADF(pooled)
    at_once = both.get_posterior(both.run(key, x, exact, y=y, worse=worse, progress_bar=False))

    nuts = MCMC(NUTS(pooled, dense_mass=True), num_warmup=200, num_samples=1000, progress_bar=False)
    nuts.run(jax.random.key(1), x, exact, y=y, worse=worse)
    reference = np.asarray(nuts.get_samples()["w"])

    posteriors = {
        f"after A ({exact.sum()} measured rows)": after_a,
        f"then B ({len(x_b)} yes/no rows), posterior as prior": chained,
        "then B, only means and sds handed on": by_hand,
    }
    print(f"{'against NUTS on the pooled rows':50s} {'largest error of a mean':>24s} {'sd ratios':>14s}")
    for name, post in posteriors.items():
        error = np.abs(np.asarray(post.mean()["w"]) - reference.mean(0)) / reference.std(0)
        ratio = np.asarray(post.sd()["w"]) / reference.std(0)
        print(f"{name:50s} {error.max():21.2f} sd {ratio.min():6.2f} to {ratio.max():.2f}")
    means_and_sds = [np.append(post.mean()["w"], post.sd()["w"]) for post in (chained, at_once)]
    gap = np.abs(means_and_sds[0] - means_and_sds[1]).max()
    print(f"\nA, then B, and one pass over the pooled rows: means and sds differ by {gap:g} at most")

    path = options.out / "posterior_as_prior.png"
    picture(path, posteriors, reference, names)
    print(f"picture: {path}")


if __name__ == "__main__":
    numpyro.set_platform("cpu")
    main()
