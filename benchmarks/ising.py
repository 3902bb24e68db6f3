"""Measures the time of a row of the Ising perceptron, compared with the same arithmetic written by hand.

Run as ``python -m benchmarks.ising``; ``--write`` puts the table into docs/speed/ising.md.
"""

import argparse
import statistics
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import adfpp
from models import ising_perceptron

PAGE = Path(__file__).parent.parent / "docs" / "speed" / "ising.md"
ROWS, REPEATS = 4096, 9


@partial(jax.jit, static_argnums=2)
def by_hand(x: jax.Array, y: jax.Array, noise: float) -> jax.Array:
    """Winther and Solla's update of the log odds, to first order in each weight's contribution to the field."""

    def row(t: jax.Array, log_odds: jax.Array) -> jax.Array:
        a, sign = 2.0 * x[t], 2.0 * y[t] - 1.0
        p, q = jax.nn.sigmoid(log_odds), jax.nn.sigmoid(-log_odds)
        mean = a @ p - 0.5 * jnp.sum(a)
        total = jnp.sqrt(noise**2 + jnp.sum(a * a * p * q))
        z = sign * mean / total
        ratio = jnp.exp(-0.5 * z * z - 0.5 * jnp.log(2.0 * jnp.pi) - jax.scipy.special.log_ndtr(z))
        slope, bend = sign * ratio / total, -ratio * (ratio + z) / total**2
        return log_odds + a * slope + a * a * bend * (0.5 - p)

    return jax.lax.fori_loop(0, x.shape[0], row, jnp.zeros(x.shape[1], x.dtype))


def measured(size: int, noise: float = 0.5) -> tuple[float, float, float]:
    """Microseconds per row of adfpp and by hand (medians of repetitions), and the largest difference of log odds."""
    data, _ = ising_perceptron.simulate(jax.random.key(0), ROWS, num_features=size, noise=noise)
    adf = adfpp.ADF(ising_perceptron.model)
    state = adf.init(jax.random.key(1), **data)
    x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"])
    times: list[tuple[float, float]] = []
    for _ in range(REPEATS + 1):
        begin = time.perf_counter()
        reached = jax.block_until_ready(adf.update(state, **data)[0])
        middle = time.perf_counter()
        log_odds = jax.block_until_ready(by_hand(x, y, noise))
        times.append((middle - begin, time.perf_counter() - middle))
    ours, hand = (statistics.median(t) * 1e6 / ROWS for t in zip(*times[1:], strict=True))
    return ours, hand, float(np.abs(reached.belief.parts[0][:, 0] - log_odds).max())


def main() -> None:
    """Measures and prints; writes the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table into docs/speed/ising.md")
    write = parser.parse_args().write
    jax.config.update("jax_enable_x64", True)
    lines = ["| N | adfpp, µs a row | by hand | ratio | largest difference of log odds |", "|---|---|---|---|---|"]
    for size in (100, 300, 1000, 3000):
        ours, hand, apart = measured(size)
        lines.append(f"| {size} | {ours:.2f} | {hand:.2f} | {ours / hand:.2f} | {apart:.1e} |")
        print(lines[-1])
    text = f"""# The Ising perceptron, against the same arithmetic by hand

Binary weights, probit noise 0.5, {ROWS} rows in one call, float64, JAX {jax.__version__}, two cores. adfpp checks its
first-order expansion where it changes a weight most, and evaluates each weight separately if the expansion is not
accurate. The hand-written `fori_loop` has the expansion alone. Written by `python -m benchmarks.ising --write`.

"""
    if write:
        PAGE.write_text(text + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
