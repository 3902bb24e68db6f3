"""The linear model of Opper (1998), section 9, in which ADF is Bayes' rule."""

import math

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

import adfpp
from adfpp.papers.laboratory.bench import Bench, Outcome
from adfpp.papers.laboratory.record import Finding
from adfpp.papers.laboratory.students import normal_weights


def linear(bench: Bench) -> Outcome:
    """In a linear model ADF is Bayes' rule, in any order of the rows."""
    size, rows, noise = 8, bench.pick(200, 2000), 0.7

    def model(x: jax.Array, y: jax.Array | None = None) -> None:
        w = normal_weights(size)
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ w, noise), obs=y)

    key_x, key_y, key_w, key_order = jax.random.split(bench.key("linear"), 4)
    x = np.asarray(jax.random.normal(key_x, (rows, size))) * np.linspace(0.2, 2.0, size)
    y = x @ np.asarray(jax.random.normal(key_w, (size,))) + noise * np.asarray(jax.random.normal(key_y, (rows,)))
    covariance = np.linalg.inv(np.eye(size) + x.T @ x / noise**2)
    mean, sds = covariance @ x.T @ y / noise**2, np.sqrt(np.diag(covariance))
    root = np.linalg.cholesky(x @ x.T + noise**2 * np.eye(rows))
    white = np.linalg.solve(root, y)
    evidence = -0.5 * white @ white - np.log(np.diag(root)).sum() - 0.5 * rows * math.log(2 * math.pi)
    orders = {
        "as they came": np.arange(rows),
        "shuffled": np.asarray(jax.random.permutation(key_order, rows)),
        "sorted by y": np.argsort(y),
    }
    findings, adf = [], adfpp.ADF(model)
    for name, order in orders.items():
        state, info = adf.run(jax.random.key(0), x[order], y=y[order], progress_bar=False)
        scale = np.asarray(state.belief.scale)
        apart = {
            "mean, in sds": np.abs((np.asarray(state.belief.mean) - mean) / sds).max(),
            "covariance, in sds": np.abs((scale @ scale.T - covariance) / np.outer(sds, sds)).max(),
            "log evidence, relative": abs(float(np.sum(info.log_z)) / evidence - 1),
        }
        for what, value in apart.items():
            what, entry = f"from the batch: {what}", f"ADF, rows {name}"
            findings.append(
                Finding(what, entry, float(value), theory=0.0, held="theory", tolerance=1e-10, why="rounding")
            )
    return Outcome(findings, [], [f"The log evidence of the {rows} rows is {evidence:.3f}."], {"N": size, "rows": rows})
