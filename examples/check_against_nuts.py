"""The error of ADF and EP, measured against NUTS and estimated without it.

    python examples/check_against_nuts.py [--out DIR]

The data are counts of a Poisson regression with an offset. ADF absorbs them in one pass, once with a full and once with
a diagonal Gaussian; EP visits them again until its result no longer changes. ``adfpp.compare`` gives the error of each
run, with the Monte Carlo error of NUTS. ``adfpp.check`` estimates the error without NUTS. The picture shows the
intervals of all runs side by side.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import adfpp

matplotlib.use("Agg")


def model(x: Any, hours: Any, y: Any = None) -> None:
    """Calls per hour, with a log rate that is affine in three correlated columns."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 2))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Poisson(hours * jnp.exp(x @ w + b)), obs=y)


def simulate(rows: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Correlated columns, for which the diagonal family is less accurate; hours of observation, and counts."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(rows, 1))
    x = 0.8 * common + 0.6 * rng.normal(size=(rows, 3))
    hours = rng.uniform(0.5, 3.0, rows)
    return x, hours, rng.poisson(hours * np.exp(x @ [0.5, -0.3, 0.2] + 0.4))


def main() -> None:
    """Runs the example."""
    parser = argparse.ArgumentParser(description="ADF and EP against NUTS.")
    parser.add_argument("--out", type=Path, default=Path("example_output"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    x, hours, y = simulate()

    full, ep = adfpp.ADF(model), adfpp.EP(model)
    runs = {"full": full, "diagonal": adfpp.ADF(model, family="diagonal"), "ep": ep}
    nuts = MCMC(NUTS(model), num_warmup=500, num_samples=2000, progress_bar=False)
    comparison = adfpp.compare(jax.random.key(0), runs, x, hours, y=y, reference=nuts, progress_bar=False)
    print(comparison, end="\n\n")
    print(comparison.parameters[["mean", "sd", "error", "mcse", "sd_ratio"]].round(3).to_string(), end="\n\n")

    result = full.run(jax.random.key(0), x, hours, y=y, progress_bar=False)
    print("one pass, without NUTS:", adfpp.check(full, result, x, hours, y=y, progress_bar=False), end="\n\n")
    revisited = ep.run(jax.random.key(0), x, hours, y=y, progress_bar=False)
    print("EP, without NUTS:", adfpp.check(ep, revisited, x, hours, y=y, progress_bar=False))

    path = options.out / "check_against_nuts.png"
    comparison.plot("forest").savefig(path, dpi=120, bbox_inches="tight")
    print(f"\npicture: {path}")


if __name__ == "__main__":
    numpyro.set_platform("cpu")
    main()
