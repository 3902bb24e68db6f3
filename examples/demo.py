"""Online logistic regression on a real data set: fold the rows in one pass, watch the belief, compare with NUTS.

    python examples/demo.py [--out DIR] [--samples N]

Prints how the model was understood, the posterior after one pass over the shuffled rows, and how far it is from NUTS
in posterior standard deviations; writes a picture of the belief along the stream.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
from sklearn.datasets import load_breast_cancer

import adfpp

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLUMNS = ("mean radius", "mean texture", "mean smoothness", "mean concavity", "mean symmetry")


def model(x: Any, y: Any = None) -> None:
    """Logistic regression, as one writes it for NUTS."""
    w = numpyro.sample("w", dist.Normal(0, 2.5).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 2.5))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)


def load() -> tuple[np.ndarray, np.ndarray]:
    """Wisconsin breast cancer, five columns, standardised; y = 1 is malignant. Rows in a fixed random order."""
    data = load_breast_cancer()
    chosen = [list(data.feature_names).index(c) for c in COLUMNS]
    x = data.data[:, chosen]
    x = (x - x.mean(0)) / x.std(0)
    order = np.random.default_rng(0).permutation(len(x))
    return x[order], 1 - data.target[order]


def trajectory(adf: adfpp.ADF, x: np.ndarray, y: np.ndarray, every: int = 8) -> tuple[np.ndarray, ...]:
    """Belief after every few rows: (rows seen, means, sds)."""
    state = adf.init(jax.random.key(0), x, y=y)
    seen, means, sds = [], [], []
    for start in range(0, len(x) - every + 1, every):
        state, _ = adf.update(state, x[start : start + every], y=y[start : start + every])
        post = adf.get_posterior(state)
        seen.append(start + every)
        means.append(np.append(post.mean()["w"], post.mean()["b"]))
        sds.append(np.append(post.sd()["w"], post.sd()["b"]))
    return np.array(seen), np.array(means), np.array(sds)


def picture(path: Path, steps: tuple[np.ndarray, ...], reference: np.ndarray, names: list[str]) -> None:
    """Mean ± sd along the stream, one panel a parameter, NUTS as a dashed line with a band of one sd."""
    seen, means, sds = steps
    figure, axes = plt.subplots(2, 3, figsize=(11, 6), sharex=True, constrained_layout=True)
    for i, (axis, name) in enumerate(zip(axes.flat, names, strict=True)):
        centre, width = reference[:, i].mean(), reference[:, i].std()
        axis.axhspan(centre - width, centre + width, color="0.88")
        axis.axhline(centre, color="0.35", ls="--", lw=1, label="NUTS, all rows (mean ± sd)")
        axis.plot(seen, means[:, i], color="C0", label="ADF, rows so far (mean ± sd)")
        axis.fill_between(seen, means[:, i] - sds[:, i], means[:, i] + sds[:, i], color="C0", alpha=0.25, lw=0)
        axis.set_title(name, fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("rows seen")
    axes.flat[0].legend(fontsize=8, loc="lower right")
    figure.suptitle("One pass of online Bayesian logistic regression towards the NUTS posterior")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Runs the demonstration."""
    parser = argparse.ArgumentParser(description="Online logistic regression against NUTS.")
    parser.add_argument("--out", type=Path, default=Path("demo_output"))
    parser.add_argument("--samples", type=int, default=2000)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    x, y = load()

    adf = adfpp.ADF(model)
    print(adf.explain(x, y=y), end="\n\n")

    begin = time.perf_counter()
    result = adf.run(jax.random.key(0), x, y=y)
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    jax.block_until_ready(adf.run(jax.random.key(0), x, y=y, progress_bar=False).state)
    again = time.perf_counter() - begin
    post = adf.get_posterior(result.state)
    print("\nposterior after one pass\n")
    print(post.summary().round(3).to_string(), end="\n\n")

    nuts = MCMC(NUTS(model), num_warmup=1000, num_samples=options.samples, progress_bar=False)
    nuts.warmup(jax.random.key(1), x, y=y)
    begin = time.perf_counter()
    nuts.run(jax.random.key(2), x, y=y)
    draws = nuts.get_samples()
    jax.block_until_ready(draws)
    sampling = time.perf_counter() - begin

    names = [f"w: {c}" for c in COLUMNS] + ["b"]
    reference = np.column_stack([np.asarray(draws["w"]), np.asarray(draws["b"])])
    mean, sd = reference.mean(0), reference.std(0)
    ours = np.append(post.mean()["w"], post.mean()["b"])
    spread = np.append(post.sd()["w"], post.sd()["b"])
    effective = np.array([float(numpyro.diagnostics.effective_sample_size(c[None])) for c in reference.T])
    print(f"{'against NUTS':20s} {'error of the mean':>18s} {'its MC error':>13s} {'sd ratio':>9s}")
    for i, name in enumerate(names):
        error, noise = (ours[i] - mean[i]) / sd[i], 1 / np.sqrt(effective[i])
        print(f"{name:20s} {error:15.2f} sd {noise:10.2f} sd {spread[i] / sd[i]:9.2f}")
    print(
        f"\nlog evidence (sum of one-step-ahead log predictive densities): {result.info.log_z.sum():.2f}"
        f"\nseconds: ADF {first:.2f} with compilation, {again:.4f} after it; NUTS {sampling:.2f} after it"
        f" ({sampling / again:.0f}x)"
    )

    path = options.out / "stream.png"
    picture(path, trajectory(adf, x, y), reference, names)
    print(f"picture: {path}")


if __name__ == "__main__":
    numpyro.set_platform("cpu")
    main()
