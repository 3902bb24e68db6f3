"""Fast approximations of a Bayesian logistic regression on real data, measured against NUTS.

    python examples/demo.py [--out DIR] [--samples N]

The data are the 569 rows of the Wisconsin breast cancer data. ADF absorbs them once, online; EP visits them again until
its result no longer changes; NumPyro fits its Laplace and Gaussian variational guides; NUTS is the reference. The
script prints the error of each result against NUTS in posterior standard deviations, with the Monte Carlo error of
NUTS. It also estimates the error of ADF and EP without NUTS, and writes a report.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoLaplaceApproximation, AutoMultivariateNormal
from sklearn.datasets import load_breast_cancer

import adfpp

matplotlib.use("Agg")


def model(x: Any, y: Any = None) -> None:
    """Logistic regression. NUTS uses the same model."""
    w = numpyro.sample("w", dist.Normal(0, 2.5).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 2.5))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)


def load() -> tuple[np.ndarray, np.ndarray]:
    """Wisconsin breast cancer, 30 columns, standardised; y = 1 is malignant."""
    data: Any = load_breast_cancer()
    return (data.data - data.data.mean(0)) / data.data.std(0), 1 - data.target


def main() -> None:
    """Runs the demonstration."""
    parser = argparse.ArgumentParser(description="Online logistic regression against NUTS.")
    parser.add_argument("--out", type=Path, default=Path("demo_output"))
    parser.add_argument("--samples", type=int, default=4000)
    options = parser.parse_args()
    x, y = load()

    adf, ep = adfpp.ADF(model), adfpp.EP(model)
    print(adf.explain(x, y=y), end="\n\n")

    adam = numpyro.optim.Adam(0.01)
    runs = {
        "adf": adf,
        "ep": ep,
        "laplace": SVI(model, AutoLaplaceApproximation(model), adam, Trace_ELBO()),
        "svi": SVI(model, AutoMultivariateNormal(model), adam, Trace_ELBO()),
    }
    comparison = adfpp.compare(jax.random.key(0), runs, x, y=y, num_samples=options.samples)
    print("\nAgainst NUTS: errors of the means in its posterior sds (mcse: its own Monte Carlo error)\n")
    print(comparison)

    result = adf.run(jax.random.key(0), x, y=y, progress_bar=False)
    print("\nOne pass, judged without NUTS:\n")
    print(adfpp.check(adf, result, x, y=y, progress_bar=False))

    revisited = ep.run(jax.random.key(0), x, y=y, progress_bar=False)
    info = revisited.info
    outcome = "converged" if info.converged else "not converged"
    print(f"\nThe same rows visited again (EP): {outcome} after {info.sweeps} sweeps.")
    steps = ", ".join(f"{step:.1g}" for step in info.step)
    print(f"Each sweep moved the belief by at most {steps} posterior sds.")
    print(f"log evidence {info.log_evidence:.2f}; from one pass {result.log_evidence:.2f}\n")
    print(adfpp.check(ep, revisited, x, y=y, progress_bar=False))

    report = comparison.report(options.out / "report.html")
    for kind, figure in comparison.plot().items():
        figure.savefig(options.out / f"{kind}.png", dpi=110)
    print(f"\npictures: {options.out}/*.png\nreport: {report}")


if __name__ == "__main__":
    numpyro.set_platform("cpu")
    numpyro.enable_x64()
    main()
