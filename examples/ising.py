"""Binary weights: the Ising perceptron learned online and by EP, against the curves of statistical mechanics.

    python examples/ising.py [--out DIR] [--teachers N]

A teacher with 500 weights of ±1 labels random inputs by the sign of their field. The model draws each weight from a
Bernoulli distribution, and adfpp stores the belief as a product of Bernoulli distributions. The script prints the share
of wrong weights after α rows for each weight: for one pass of ADF, for EP, and for a Gaussian belief over real weights
whose means are clipped to their signs. It also prints two theoretical curves for infinitely many weights: the
Bayes-optimal share, and the share that the theory predicts for one pass.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist

import adfpp
from adfpp.distributions import Probit
from adfpp.papers.theory import ising

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ALPHAS = np.array([0.5, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0])
EP_ALPHAS = ALPHAS[:5]


def model(x: Any, y: Any = None) -> None:
    """Weights of ±1, and the sign of the field."""
    sign: Any = numpyro.sample("sign", dist.Bernoulli(0.5).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x @ (2.0 * sign - 1.0), 0.0), obs=y)


def real_weights(x: Any, y: Any = None) -> None:
    """The same rows with real weights."""
    w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x @ w, 0.0), obs=y)


def simulate(seed: int, weights: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs whose fields have variance 1, labels, and the teacher's weights as 0 and 1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(int(weights * ALPHAS[-1]), weights)) / np.sqrt(weights)
    teacher = rng.integers(0, 2, weights)
    return x, (x @ (2 * teacher - 1) > 0).astype(int), teacher


def wrong(posterior: adfpp.Posterior, teacher: np.ndarray) -> float:
    """Share of weights whose more probable value is not the teacher's."""
    ((name, mean),) = posterior.mean().items()
    return float(np.mean((np.asarray(mean) > (0.5 if name == "sign" else 0.0)) != teacher))


def online(adf: adfpp.ADF, x: np.ndarray, y: np.ndarray, teacher: np.ndarray) -> list[float]:
    """Shares of wrong weights during one pass."""
    state, start, shares = adf.init(jax.random.key(0), x, y=y), 0, []
    for stop in (ALPHAS * len(teacher)).astype(int):
        state, _ = adf.update(state, x[start:stop], y=y[start:stop])
        shares.append(wrong(adf.get_posterior(state), teacher))
        start = stop
    return shares


def revisited(ep: adfpp.EP, x: np.ndarray, y: np.ndarray, teacher: np.ndarray) -> list[float]:
    """Shares of wrong weights at the end of EP, with a new run for each α."""
    shares = []
    for rows in (EP_ALPHAS * len(teacher)).astype(int):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", adfpp.NotConverged)  # near the transition EP converges slowly
            result = ep.run(jax.random.key(1), x[:rows], y=y[:rows], progress_bar=False)
        shares.append(wrong(result.posterior, teacher))
    return shares


def picture(path: Path, shares: dict[str, tuple[np.ndarray, np.ndarray]], teachers: int, weights: int) -> None:
    """Shares of wrong weights against α."""
    figure, axes = plt.subplots(figsize=(8, 4.8), constrained_layout=True)
    grid = np.linspace(0.05, ALPHAS[-1], 300)
    best, one_pass = ising.bayes_batch(grid), ising.adf_online(grid)
    axes.plot(grid, best.equilibrium.wrong_bits, color="0.2", label="Bayes-optimal, batch")
    axes.plot(grid, best.low.wrong_bits, color="0.2", ls=":", lw=1, label="…where it is only locally stable")
    axes.plot(grid, one_pass.wrong_bits, color="C0", label="one pass, theory")
    for (name, (mean, error)), marker, colour in zip(shares.items(), "os^", ("C0", "C1", "C2"), strict=True):
        axes.errorbar(ALPHAS[: len(mean)], mean, error, fmt=marker, color=colour, ms=5, capsize=3, label=name)
    axes.set(xlabel="α: rows for each weight", ylabel="share of wrong weights", ylim=(-0.01, 0.45), xlim=(0, 5.1))
    axes.set_title(f"Ising perceptron, {weights} weights, {teachers} teachers, no noise")
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Runs all three for each teacher, prints the table and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("example_output"), help="where the picture goes")
    parser.add_argument("--teachers", type=int, default=4, metavar="N", help="at least 2 (default 4)")
    parser.add_argument("--weights", type=int, default=500, metavar="N", help="a multiple of 4 (default 500)")
    options = parser.parse_args()
    teachers = max(options.teachers, 2)
    jax.config.update("jax_enable_x64", True)
    adf, gaussian = adfpp.ADF(model), adfpp.ADF(real_weights)
    ep = adfpp.EP(model, max_sweeps=30)
    runs: dict[str, list[list[float]]] = {"one pass": [], "EP": [], "Gaussian, clipped": []}
    for seed in range(teachers):
        data = simulate(seed, options.weights)
        runs["one pass"].append(online(adf, *data))
        runs["EP"].append(revisited(ep, *data))
        runs["Gaussian, clipped"].append(online(gaussian, *data))
    shares = {k: (np.mean(v, 0), np.std(v, 0) / np.sqrt(teachers - 1)) for k, v in runs.items()}
    best, one_pass = ising.bayes_batch(ALPHAS).equilibrium.wrong_bits, ising.adf_online(ALPHAS).wrong_bits
    print(adf.explain(*simulate(0, options.weights)[:2]).factors[0].why)
    print("\nshare of wrong weights (standard error)")
    print(f"{'α':>5} {'Bayes':>7} {'EP':>14} {'one pass, theory':>17} {'one pass':>14} {'Gaussian, clipped':>18}")
    for i, alpha in enumerate(ALPHAS):
        cells = {k: f"{m[i]:.3f} ({e[i]:.3f})" if i < len(m) else "" for k, (m, e) in shares.items()}
        print(
            f"{alpha:5.2f} {best[i]:7.3f} {cells['EP']:>14} {one_pass[i]:17.3f} {cells['one pass']:>14} "
            f"{cells['Gaussian, clipped']:>18}"
        )
    path = options.out / "ising.png"
    picture(path, shares, teachers, options.weights)
    print(f"\npicture: {path}")


if __name__ == "__main__":
    main()
