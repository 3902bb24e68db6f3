"""A small neural network learned one row at a time, with Monte Carlo moments, as in the outlook of Opper's paper.

    python examples/network.py [--out DIR]

The labels of a noisy chequerboard, which no linear model can learn, arrive as a stream. A network of eight tanh units
with 33 weights is learned in one pass: by ADF with a full and with a diagonal Gaussian, by an extended Kalman filter
that linearises the network at its mean, and by stochastic gradient descent at the best of four rates. EP visits the
rows again, ten times. NUTS on all rows is the reference. The posterior of a network has many modes that are mirror
images, so weights cannot be compared. The script compares predictions of new rows instead, prints their log scores and
accuracies, and draws the log scores.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from numpyro.infer import MCMC, NUTS

import adfpp

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HIDDEN, ROWS, STEP = 8, 600, 60
RATES = (0.03, 0.1, 0.3, 1.0)
Curve = list[tuple[int, float, float]]


ANGLES = 2 * np.pi * np.arange(HIDDEN) / HIDDEN
DIRECTIONS = 1.5 * np.stack([np.cos(ANGLES), np.sin(ANGLES)])


def model(x: Any, y: Any = None) -> None:
    """Two-layer network, as in models/network.py. The prior means of the units' directions tell the units apart."""
    a = numpyro.sample("a", dist.Normal(DIRECTIONS, 0.7).to_event(2))
    b = numpyro.sample("b", dist.Normal(0, 0.7).expand([HIDDEN]).to_event(1))
    c = numpyro.sample("c", dist.Normal(0, 2).expand([HIDDEN]).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=jnp.tanh(x @ a + b) @ c + bias), obs=y)


def simulate(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs in the plane; the label 1 is likely where both coordinates have the same sign."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    certainty = 4.0 * np.tanh(2.0 * x[:, 0]) * np.tanh(2.0 * x[:, 1])
    return x, (rng.random(rows) < 1.0 / (1.0 + np.exp(-certainty))).astype(int)


def logit(weights: dict[str, jax.Array], x: Any) -> jax.Array:
    """The network's output for inputs ``(..., 2)``."""
    return jnp.tanh(x @ weights["a"] + weights["b"]) @ weights["c"] + weights["bias"]


@jax.jit
def averaged(draws: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Probability of 1, averaged over draws of the weights."""
    return jnp.mean(jax.nn.sigmoid(jax.vmap(lambda w: logit(w, x))(draws)), 0)


def predicted(posterior: adfpp.Posterior, x: Any) -> jax.Array:
    """Probability of 1 under a posterior."""
    return averaged(posterior.sample(jax.random.key(1), (400,)), x)


def scores(probability: Any, y: np.ndarray) -> tuple[float, float]:
    """Mean log score and accuracy."""
    p = np.clip(np.asarray(probability, float), 1e-12, 1 - 1e-12)
    return float(np.mean(np.where(y, np.log(p), np.log1p(-p)))), float(np.mean((p > 0.5) == y))


def by_adf(
    family: str, x: np.ndarray, y: np.ndarray, test: tuple[np.ndarray, np.ndarray]
) -> tuple[Curve, adfpp.Posterior]:
    """One pass of ADF, with the scores along the way."""
    adf = adfpp.ADF(model, family=family)
    state = adf.init(jax.random.key(0), x, y=y)
    curve, counts = [], np.zeros(len(adfpp.Status), int)
    for start in range(0, len(x), STEP):
        some = slice(start, start + STEP)
        state, info = adf.update(state, x[some], y=y[some])
        counts += np.bincount(info.status, minlength=len(counts))
        curve.append((start + STEP, *scores(predicted(adf.get_posterior(state), test[0]), test[1])))
    by_status = ", ".join(f"{counts[s]} {s.name}" for s in adfpp.Status if counts[s])
    print(f"ADF, {family}: rows by status: {by_status}")
    return curve, adf.get_posterior(state)


def by_ep(x: np.ndarray, y: np.ndarray, test: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """Ten sweeps of EP. They are too few for the default tolerance, but enough for the predictions."""
    ep = adfpp.EP(model, max_sweeps=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adfpp.NotConverged)
        result = ep.run(jax.random.key(0), x, y=y, progress_bar=False)
    sizes = ", ".join(f"{step:.2g}" for step in result.info.step)
    print(f"EP: the sizes of its sweeps, in sds: {sizes}")
    return scores(predicted(ep.get_posterior(result), test[0]), test[1])


def flat_start() -> tuple[jax.Array, jax.Array, Callable[[jax.Array], Any]]:
    """The prior's mean and sds as vectors, and a function from a vector to weights.

    At the prior mean the network does not depend on its input weights, so the output weights have small values instead.
    """
    small = 0.1 * np.random.default_rng(3).normal(size=HIDDEN)
    mean, back = ravel_pytree({"a": DIRECTIONS, "b": np.zeros(HIDDEN), "c": small, "bias": 0.0})
    b = np.full(HIDDEN, 0.7)
    sd, _ = ravel_pytree({"a": np.full((2, HIDDEN), 0.7), "b": b, "c": np.full(HIDDEN, 2.0), "bias": 1.0})
    return mean, sd, back


def by_ekf(x: np.ndarray, y: np.ndarray, test: tuple[np.ndarray, np.ndarray]) -> Curve:
    """Plug-in extended Kalman filter: it linearises the logit at the mean, and treats y as a Gaussian."""
    mean, sd, back = flat_start()

    def absorb(belief: Any, row: Any) -> tuple[Any, None]:
        m, cov = belief
        h, slope = jax.value_and_grad(lambda w: logit(back(w), row[0]))(m)
        p = jax.nn.sigmoid(h)
        gain = cov @ slope / (1.0 / (p * (1 - p)) + slope @ cov @ slope)
        return (m + gain * (row[1] - p) / (p * (1 - p)), cov - jnp.outer(gain, cov @ slope)), None

    belief, curve = (mean, jnp.diag(sd**2)), []
    run = jax.jit(lambda b, rows: jax.lax.scan(absorb, b, rows)[0])
    for start in range(0, len(x), STEP):
        some = slice(start, start + STEP)
        belief = run(belief, (x[some], y[some]))
        curve.append((start + STEP, *scores(jax.nn.sigmoid(logit(back(belief[0]), test[0])), test[1])))
    return curve


def by_sgd(rate: float, x: np.ndarray, y: np.ndarray, test: tuple[np.ndarray, np.ndarray]) -> Curve:
    """Stochastic gradient descent on the log loss, one row at each step."""
    w, _, back = flat_start()

    def loss(w: jax.Array, row: Any) -> jax.Array:
        return jax.nn.softplus((1 - 2 * row[1]) * logit(back(w), row[0]))

    curve = []
    run = jax.jit(lambda w, rows: jax.lax.scan(lambda w, r: (w - rate * jax.grad(loss)(w, r), None), w, rows)[0])
    for start in range(0, len(x), STEP):
        some = slice(start, start + STEP)
        w = run(w, (x[some], y[some]))
        curve.append((start + STEP, *scores(jax.nn.sigmoid(logit(back(w), test[0])), test[1])))
    return curve


def picture(
    path: Path, curves: dict[str, Curve], batch: dict[str, float], maps: dict[str, Callable[[Any], Any]]
) -> None:
    """Left: log scores along the stream. Right: predictions of the full ADF and of NUTS in the plane."""
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.4), constrained_layout=True)
    for k, (name, curve) in enumerate(curves.items()):
        axes[0].plot([c[0] for c in curve], [c[1] for c in curve], ["-", "--", "-.", ":"][k], lw=2, label=name)
    for (name, score), line in zip(batch.items(), ("--", "-"), strict=True):
        axes[0].axhline(score, color="0.4", ls=line, lw=1, label=f"{name}, all rows")
    axes[0].set(xlabel="rows seen", ylabel="mean log score of 2000 other rows")
    axes[0].set_ylim(max(-1.5, min(c[1] for curve in curves.values() for c in curve)), -0.25)
    axes[0].legend(fontsize=8)
    grid = np.linspace(-3, 3, 61)
    plane = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2)
    colours = ScalarMappable(Normalize(0, 1), "RdBu_r")
    for axis, (name, predict) in zip(axes[1:], maps.items(), strict=True):
        shown = np.asarray(predict(plane)).reshape(61, 61)
        axis.pcolormesh(grid, grid, shown, cmap="RdBu_r", vmin=0, vmax=1)
        axis.contour(grid, grid, shown, [0.5], colors="k", linewidths=1)
        axis.set(title=f"P(y = 1), {name}", xlabel="first input", ylabel="second input", aspect="equal")
    figure.colorbar(colours, ax=axes[2])
    figure.suptitle("A network of eight tanh units, learned in one pass over a noisy chequerboard")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> None:
    """Runs the example."""
    parser = argparse.ArgumentParser(description="A small network learned online by ADF, EKF and SGD, against NUTS.")
    parser.add_argument("--out", type=Path, default=Path("example_output"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    x, y = simulate(ROWS, 0)
    test = simulate(2000, 1)

    curves: dict[str, Curve] = {}
    seconds: dict[str, float] = {}

    def timed(name: str, run: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        out = run()
        seconds[name] = time.perf_counter() - begin
        return out

    curves["ADF, full"], full = timed("ADF, full", lambda: by_adf("full", x, y, test))
    curves["ADF, diagonal"], _ = timed("ADF, diagonal", lambda: by_adf("diagonal", x, y, test))
    curves["EKF, plug-in"] = timed("EKF, plug-in", lambda: by_ekf(x, y, test))
    tried = timed("SGD", lambda: {rate: by_sgd(rate, x, y, test) for rate in RATES})
    best = max(tried, key=lambda rate: tried[rate][-1][1])
    curves[f"SGD, rate {best:g} (best of {len(RATES)})"] = tried[best]
    seconds[f"SGD, rate {best:g} (best of {len(RATES)})"] = seconds.pop("SGD")

    ep_scores = timed("EP, ten sweeps", lambda: by_ep(x, y, test))
    nuts = MCMC(NUTS(model, max_tree_depth=6), num_warmup=150, num_samples=250, progress_bar=False)
    timed("NUTS, all rows", lambda: nuts.run(jax.random.key(2), x, y=y))
    reference = dict(nuts.get_samples())
    nuts_scores = scores(averaged(reference, test[0]), test[1])

    middle = ROWS // (2 * STEP) - 1
    print(f"\n{'predicting 2000 other rows':28s} {'log score':>20s} {'accuracy':>18s} {'seconds':>9s}")
    print(f"{'':28s} {f'{ROWS // 2} rows':>10s}{f'{ROWS} rows':>10s} {f'{ROWS // 2} rows':>9s}{f'{ROWS} rows':>9s}")
    for name, curve in curves.items():
        (_, early, early_right), (_, late, late_right) = curve[middle], curve[-1]
        print(f"{name:28s} {early:10.3f}{late:10.3f} {early_right:9.1%}{late_right:9.1%} {seconds[name]:9.1f}")
    for name, (late, late_right) in (("EP, ten sweeps", ep_scores), ("NUTS, all rows", nuts_scores)):
        print(f"{name:28s} {'':10s}{late:10.3f} {'':9s}{late_right:9.1%} {seconds[name]:9.1f}")

    path = options.out / "network.png"
    picture(
        path,
        curves,
        {"EP": ep_scores[0], "NUTS": nuts_scores[0]},
        {"ADF, full": partial(predicted, full), "NUTS": partial(averaged, reference)},
    )
    print(f"picture: {path}")


if __name__ == "__main__":
    numpyro.set_platform("cpu")
    main()
