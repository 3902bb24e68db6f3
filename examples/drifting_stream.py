"""A stream that drifts, learned online: three assumptions about moving coefficients, scored by their predictions.

    python examples/drifting_stream.py [--out DIR]

The rows are clicks on a page. The effect of a picture falls and rises slowly; the effect of a price tag switches when a
sale begins. Three learners of the same logistic model absorb the rows: for the first the coefficients are constant, for
the second they take a random walk, and the third forgets old rows. Each learner predicts each row before it absorbs it,
so the sum of the log scores shows which assumption suits the stream. Afterwards the random walk is smoothed: the
coefficients at each row are estimated from all rows. The script prints the scores, and draws the true paths with the
mean ± sd of each learner.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import jax
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist

import adfpp
from adfpp.learn.smoothing import Smoothed, smooth

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COEFFICIENTS = ("picture", "price tag", "baseline")
ROWS, CHUNK, SWITCH = 6000, 50, 3500
WALK = "random walk"


def model(x: Any, click: Any = None) -> None:
    """Logistic regression of clicks. The model does not describe how the coefficients move."""
    w = numpyro.sample("w", dist.Normal(0, 1.5).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("click", dist.Bernoulli(logits=x @ w), obs=click)


def simulate(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, clicks, and the true path of the coefficients, (rows, 3)."""
    t = np.arange(ROWS)
    path = np.column_stack([1.5 * np.cos(2 * np.pi * t / ROWS), np.where(t < SWITCH, -1.0, 1.0), np.full(ROWS, -0.5)])
    x = np.column_stack([rng.normal(size=(ROWS, 2)), np.ones(ROWS)])
    click = rng.random(ROWS) < 1 / (1 + np.exp(-np.sum(x * path, 1)))
    return x, click.astype(int), path


class Followed(NamedTuple):
    """A learner's belief after every chunk, (chunks, 3), and the log score of every row, (rows,)."""

    mean: np.ndarray
    sd: np.ndarray
    score: np.ndarray


def follow(adf: adfpp.ADF, x: np.ndarray, click: np.ndarray) -> Followed:
    """Absorbs the stream chunk by chunk, and records the belief after each chunk."""
    state = adf.init(jax.random.key(0), x, click=click)
    means, sds, scores = [], [], []
    for start in range(0, len(x), CHUNK):
        now = slice(start, start + CHUNK)
        state, info = adf.update(state, x[now], click=click[now])
        post = adf.get_posterior(state)
        means.append(post.mean()["w"])
        sds.append(post.sd()["w"])
        scores.append(info.log_z)
    return Followed(np.array(means), np.array(sds), np.concatenate(scores))


def picture(path: Path, followed: dict[str, Followed], smoothed: Smoothed, truth: np.ndarray) -> None:
    """Panels with a row for each coefficient and a column for each learner; below, the gain in score over "static"."""
    figure = plt.figure(figsize=(12, 8), constrained_layout=True)
    parts: Any = figure.subfigures(2, 1, height_ratios=(2, 1))
    upper, lower = parts
    grid = upper.subplots(2, len(followed), sharex=True, sharey=True)
    seen = np.arange(CHUNK, ROWS + 1, CHUNK)
    for j, (name, run) in enumerate(followed.items()):
        for i in range(2):
            axis = grid[i, j]
            axis.plot(truth[:, i], color="k", ls="--", lw=1.2, label="truth")
            axis.plot(seen, run.mean[:, i], color=f"C{j}", label="mean ± sd given the rows so far")
            low, high = run.mean[:, i] - run.sd[:, i], run.mean[:, i] + run.sd[:, i]
            axis.fill_between(seen, low, high, color=f"C{j}", alpha=0.3, lw=0)
            if name.startswith(WALK):
                axis.plot(smoothed.mean[:, i], color="C3", label="mean given all rows, smoothed")
            if j == 0:
                axis.set_ylabel(f"coefficient of\nthe {COEFFICIENTS[i]} (logits)")
        grid[0, j].set_title(name, fontsize=10)
        grid[1, j].legend(fontsize=8, loc="upper left")
        grid[1, j].set_xlabel("rows seen")
    axis = lower.subplots()
    static = followed["static"].score
    for j, (name, run) in enumerate(followed.items()):
        axis.plot(np.cumsum(run.score - static), color=f"C{j}", ls=("-", "-", "--")[j], label=name)
    axis.axvline(SWITCH, color="0.7", lw=1)
    axis.annotate(
        "the sale begins", (SWITCH, 0.95), (5, 0), ("data", "axes fraction"), "offset points", va="top", fontsize=8
    )
    axis.set(xlabel="rows seen", ylabel="log score gained\nover the static learner (nats)", xlim=grid[0, 0].get_xlim())
    axis.legend(fontsize=8, loc="upper left")
    figure.suptitle(
        "Click stream with coefficients that move: the belief of each learner, and how well it predicts the next row"
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Runs the example."""
    parser = argparse.ArgumentParser(description="A drifting stream followed online.")
    parser.add_argument("--out", type=Path, default=Path("example_output"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    x, click, truth = simulate(np.random.default_rng(0))

    learners = {
        "static": adfpp.ADF(model),
        f"{WALK}, variance 0.0003 per row": adfpp.ADF(model, dynamics=adfpp.RandomWalk(0.0003)),
        "discount, forgetting 0.995 per row": adfpp.ADF(model, dynamics=adfpp.Discount(0.995)),
    }
    followed = {name: follow(adf, x, click) for name, adf in learners.items()}
    print(f"{ROWS} rows: mean log score of a row before it was absorbed (0 is perfect, -0.693 a coin)\n")
    print(f"{'':36s} {'all rows':>9s} {'after the switch':>17s} {'error of the coefficients':>26s}")
    for name, run in followed.items():
        error = np.sqrt(np.mean((run.mean - truth[CHUNK - 1 :: CHUNK]) ** 2))
        print(f"{name:36s} {run.score.mean():9.4f} {run.score[SWITCH : SWITCH + 500].mean():17.4f} {error:26.2f}")

    walk = next(adf for name, adf in learners.items() if name.startswith(WALK))
    smoothed = smooth(walk, x, click=click, sweeps=20, progress_bar=False)
    error = np.sqrt(np.mean((smoothed.mean - truth) ** 2))
    print(f"{WALK + ', smoothed':36s} {'':9s} {'':17s} {error:26.2f}")

    path = options.out / "drifting_stream.png"
    picture(path, followed, smoothed, truth)
    print(f"\npicture: {path}")


if __name__ == "__main__":
    numpyro.set_platform("cpu")
    main()
