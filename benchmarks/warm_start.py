"""Measures how much warm-up NUTS saves if it starts from the online posterior.

    python -m benchmarks.warm_start [--write]

The cold start has NumPyro's defaults. The warm start uses the covariance from one online pass as a fixed mass matrix,
and draws from the posterior of this pass as initial points, so that warm-up adapts only the step size. Both sample
4 chains of 500 draws from a logistic regression of the breast cancer data (569 rows, 31 coefficients); the online pass
takes milliseconds. The table shows, over three seeds, the worst R-hat of a coefficient, the least effective sample size
(ESS), and the mean number of gradients of the log density in warm-up and sampling together.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS

import adfpp
from examples.demo import load, model

_CHAINS, _DRAWS, _SEEDS = 4, 500, (0, 1, 2)
_WARM_UPS = (20, 50, 100, 200, 400)


def sampled(
    kernel: NUTS, warm_up: int, seed: int, points: Any, x: np.ndarray, y: np.ndarray
) -> tuple[float, float, float]:
    """Runs NUTS; returns the worst R-hat, the least ESS, and the number of gradients in all chains."""
    mcmc = MCMC(
        kernel,
        num_warmup=warm_up,
        num_samples=_DRAWS,
        num_chains=_CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )
    fields = ("num_steps",)
    mcmc.warmup(jax.random.key(seed), x, y=y, init_params=points, extra_fields=fields, collect_warmup=True)
    steps = float(np.sum(mcmc.get_extra_fields()["num_steps"]))
    mcmc.run(jax.random.key(seed + 100), x, y=y, extra_fields=fields)
    steps += float(np.sum(mcmc.get_extra_fields()["num_steps"]))
    draws = mcmc.get_samples(group_by_chain=True)
    flat = np.concatenate([np.asarray(draws["w"]), np.asarray(draws["b"])[..., None]], -1)
    jax.clear_caches()  # a run of NUTS leaves 1,700 memory maps, and a process may have 65,530
    return float(split_gelman_rubin(flat).max()), float(effective_sample_size(flat).min()), steps


def table() -> str:
    """The table as Markdown."""
    x, y = load()
    adf = adfpp.ADF(model)
    post = adf.run(jax.random.key(0), x, y=y, progress_bar=False).posterior
    lines = ["| warm-up | R-hat cold | R-hat warm | ESS cold | ESS warm | gradients cold | gradients warm |"]
    lines.append("|---|---|---|---|---|---|---|")
    for warm_up in _WARM_UPS:
        cells: dict[str, list[tuple[float, float, float]]] = {"cold": [], "warm": []}
        for seed in _SEEDS:
            cells["cold"].append(sampled(NUTS(model), warm_up, seed, None, x, y))
            matrix = post.inverse_mass_matrix()
            kernel = NUTS(model, inverse_mass_matrix=matrix, dense_mass=True, adapt_mass_matrix=False)
            points = post.initial_points(jax.random.key(seed), _CHAINS)
            cells["warm"].append(sampled(kernel, warm_up, seed, points, x, y))
        cold, warm = np.array(cells["cold"]), np.array(cells["warm"])
        lines.append(
            f"| {warm_up} | {cold[:, 0].max():.3f} | {warm[:, 0].max():.3f} | {cold[:, 1].min():.0f} | "
            f"{warm[:, 1].min():.0f} | {cold[:, 2].mean():,.0f} | {warm[:, 2].mean():,.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Prints the table, and writes it if asked."""
    parser = argparse.ArgumentParser(description="NUTS from the online posterior.")
    parser.add_argument("--write", action="store_true", help="write docs/warm-start.md")
    options = parser.parse_args()
    numpyro.enable_x64()
    text = table()
    print(text)
    if options.write:
        path = Path(__file__).parent.parent / "docs" / "warm-start.md"
        head = "# NUTS from the online posterior\n\nMade by `python -m benchmarks.warm_start --write`.\n\n"
        path.write_text(f"{head}{(__doc__ or '').split('[--write]')[1].strip()}\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
