"""Measures the time of a parallel sweep of EP, compared with the two matrix products that it needs, and its memory.

Run as ``python -m benchmarks.sweep``; ``--write`` puts the tables into docs/speed/sweep.md.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import adfpp

PAGE = Path(__file__).parent.parent / "docs" / "speed" / "sweep.md"
ROWS, COLUMNS, CHUNK = 100_000, 100, 8192


def probit(x: Any, y: Any = None) -> None:
    """Probit regression, whose tilted moments have a closed form."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", adfpp.distributions.Probit(x @ w), obs=y)


def logistic(x: Any, y: Any = None) -> None:
    """Logistic regression, whose tilted moments need quadrature."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def data(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal columns and labels that follow them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, columns))
    field = x @ rng.normal(size=columns) / np.sqrt(columns)
    return x, (field + rng.logistic(size=rows) > 0).astype(np.int64)


def sweeps() -> list[tuple[str, float, float]]:
    """For each model its name, the seconds of a sweep and those of the two products (medians of repetitions).

    The time of a sweep is a tenth of the difference between a run of thirteen sweeps and a run of three.
    """
    x, y = data(ROWS, COLUMNS)

    @jax.jit
    def products(rows: jax.Array, root: jax.Array, weight: jax.Array) -> jax.Array:
        f = rows @ root
        return (f * weight[:, None]).T @ f

    found = []
    for model in (probit, logistic):
        runs = [adfpp.EP(model, schedule="parallel", damping=1.0, max_sweeps=k, tol=1e-15) for k in (3, 13)]

        def run(ep: adfpp.EP) -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", adfpp.NotConverged)
                return ep.run(jax.random.key(0), x, y=y, progress_bar=False).state

        state = run(runs[0])
        root, weight = state.belief.scale, jnp.asarray(state.sites[0][:, 0, 1])

        def two(root: jax.Array = root, weight: jax.Array = weight) -> jax.Array:
            total = jnp.zeros((COLUMNS, COLUMNS))
            for start in range(0, ROWS, CHUNK):
                some = slice(start, start + CHUNK)
                total = total + products(jnp.asarray(x[some]), root, weight[some])
            return total

        jax.block_until_ready((run(runs[1]), two()))
        spent: list[list[float]] = [[], [], []]
        for _ in range(5):
            for times, work in zip(spent, (partial(run, runs[0]), partial(run, runs[1]), two), strict=True):
                begin = time.perf_counter()
                jax.block_until_ready(work())
                times.append(time.perf_counter() - begin)
        few, many, both = (statistics.median(t) for t in spent)
        found.append((model.__name__, (many - few) / 10, both))
    return found


def million() -> str:
    """Runs EP on a million rows and 50 columns in this process; returns seconds, sweeps and peak memory as a line."""
    x, y = data(1_000_000, 50)
    begin = time.perf_counter()
    result = adfpp.EP(logistic).run(jax.random.key(0), x, y=y, progress_bar=False)
    spent = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    sites = sum(a.nbytes for a in result.state.sites) / 2**20
    info, held = result.info, x.nbytes / 2**20
    return f"| {spent:.0f} | {info.sweeps} | {info.converged} | {held:.0f} | {sites:.0f} | {peak:.2f} |"


def main() -> None:
    """Prints the tables, and writes them if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--million", action="store_true", help="only the million rows")
    options = parser.parse_args()
    if options.million:
        print(million())
        return
    lines = ["# What a sweep of EP costs", ""]
    lines += [
        f"`python -m benchmarks.sweep --write`, JAX {jax.__version__}, float64, two cores.",
        "",
    ]
    lines += [
        f"A parallel sweep over {ROWS:,} rows and {COLUMNS} columns against the two matrix products that it needs:",
        "",
    ]
    lines += ["| model | sweep, s | two products, s | ratio |", "|---|---|---|---|"]
    lines += [f"| {name} | {a:.3f} | {b:.3f} | {a / b:.2f} |" for name, a, b in sweeps()]
    lines += ["", "A logistic regression of a million rows and 50 columns (data, sites and peak in MB, MB and GB):", ""]
    lines += [
        "| seconds, with compilation | sweeps | converged | data, MB | sites, MB | peak of memory, GB |",
        "|---|---|---|---|---|---|",
    ]
    # in a separate process, because the peak of memory is that of the whole life of a process
    command = [sys.executable, "-m", "benchmarks.sweep", "--million"]
    lines += [subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    numpyro.set_platform("cpu")
    numpyro.enable_x64()
    main()
