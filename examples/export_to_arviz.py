"""Export to ArviZ: one pass over the data, then summary, leave-one-out, model comparison, netCDF and a picture.

    python examples/export_to_arviz.py [--out DIR]

The data are ten measurements of 442 diabetes patients, and how far the disease had progressed a year later. Two
regressions learn from them in one pass each: one uses all ten columns, the other the body mass index and the blood
pressure only. `adfpp.to_arviz` exports each to ArviZ with named dimensions. ArviZ summarises and compares them;
`adfpp.loo` computes leave-one-out with the weights that draws from an approximation need. The first export is written
to netCDF, read back, and drawn from the file.
"""

import argparse
from pathlib import Path
from typing import Any

import arviz
import jax
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
from sklearn.datasets import load_diabetes

import adfpp

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SHOWN = ("bmi", "bp", "sex", "s5")  # the columns whose coefficients are drawn along the stream


def model(x: Any, y: Any = None) -> None:
    """Linear regression with unknown scatter, an ordinary NumPyro model."""
    w = numpyro.sample("w", dist.Normal(0, 0.5).expand([x.shape[-1]]).to_event(1))
    scatter = numpyro.sample("scatter", dist.LogNormal(-0.5, 0.5))
    with numpyro.plate("patient", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, scatter), obs=y)


def load() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Columns and progression, standardised, and the columns' names."""
    data = load_diabetes(scaled=False)
    x, y = np.asarray(data.data, float), np.asarray(data.target, float)
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std(), list(data.feature_names)


def export(x: np.ndarray, y: np.ndarray, columns: list[str]) -> Any:
    """One pass over the rows in random order, as data for ArviZ."""
    result = adfpp.ADF(model).run(jax.random.key(0), x, y=y, shuffle=True, progress_bar=False, snapshots=8)
    coords = {"column": columns}
    return adfpp.to_arviz(result, x, y=y, coords=coords, dims={"w": ["column"], "x": ["patient", "column"]})


def picture(path: Path, data: Any, elpd: Any) -> None:
    """Coefficients, their path along the stream, the posterior predictive, and the Pareto k of each patient."""
    figure, axes = plt.subplots(2, 2, figsize=(11, 7.5), constrained_layout=True)
    forest(axes[0, 0], data["posterior"]["w"])
    stream(axes[0, 1], data["trajectory"], list(data["posterior"]["column"].values))
    predictive(axes[1, 0], data["posterior_predictive"]["y"].values, data["observed_data"]["y"].values)
    axis = axes[1, 1]
    axis.scatter(np.arange(elpd["pareto_k"].size), elpd["pareto_k"].values, s=8, color="C0")
    axis.axhline(elpd["good_k"], color="C3", ls="--", lw=1, label=f"reliable below {elpd['good_k']:.2f}")
    axis.set(title="Leave-one-out: Pareto k of every patient", xlabel="patient", ylabel="Pareto k")
    axis.set_ylim(top=0.85)
    axis.legend(loc="upper right", fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def forest(axis: Any, w: Any) -> None:
    """Mean, central 50 % and central 94 % of each coefficient."""
    draws = w.stack(sample=("chain", "draw"))
    for place, name in enumerate(w["column"].values):
        values = draws.sel(column=name).values
        axis.plot(np.quantile(values, [0.03, 0.97]), [place, place], color="C0", lw=1.2)
        axis.plot(np.quantile(values, [0.25, 0.75]), [place, place], color="C0", lw=3.5)
        axis.plot(values.mean(), place, "o", color="white", mec="C0", ms=5)
    axis.axvline(0, color="0.6", lw=0.8)
    axis.set_yticks(range(w.sizes["column"]), w["column"].values)
    axis.invert_yaxis()
    axis.set(
        title="Group posterior: coefficients (50 % and 94 %)", xlabel="progression in sds, for one sd of the column"
    )


def stream(axis: Any, trajectory: Any, columns: list[str]) -> None:
    """Mean ± sd of some coefficients given the rows so far."""
    rows = trajectory["rows"].values
    for i, name in enumerate(SHOWN):
        place = columns.index(name)
        mean, sd = trajectory["mean"].values[:, place], trajectory["sd"].values[:, place]
        axis.plot(rows, mean, color=f"C{i}", label=name)
        axis.fill_between(rows, mean - sd, mean + sd, color=f"C{i}", alpha=0.18, lw=0)
    axis.axhline(0, color="0.6", lw=0.8)
    axis.set(
        title="Group trajectory: belief along the stream (mean ± sd)", xlabel="patients seen", ylabel="coefficient"
    )
    axis.legend(ncol=2, fontsize=9)


def predictive(axis: Any, drawn: np.ndarray, observed: np.ndarray) -> None:
    """Histograms of data sets drawn from the posterior predictive, and of the observed one."""
    drawn = drawn.reshape(-1, drawn.shape[-1])
    edges = np.linspace(-3.5, 3.5, 29)
    heights = np.array([np.histogram(d, edges, density=True)[0] for d in drawn[:200]])
    middle = 0.5 * (edges[1:] + edges[:-1])
    low, high = np.quantile(heights, [0.03, 0.97], axis=0)
    axis.fill_between(
        middle, low, high, step="mid", color="C0", alpha=0.3, lw=0, label="drawn from the posterior, 94 %"
    )
    axis.step(middle, np.histogram(observed, edges, density=True)[0], where="mid", color="0.15", label="observed")
    axis.set(title="Groups posterior_predictive and observed_data", xlabel="progression in sds", ylabel="density")
    axis.set_ylim(top=0.6)
    axis.legend(loc="upper right", fontsize=9)


def main() -> None:
    """Runs the example."""
    parser = argparse.ArgumentParser(description="Export to ArviZ.")
    parser.add_argument("--out", type=Path, default=Path("example_output"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    x, y, columns = load()

    data = export(x, y, columns)
    table: Any = arviz.summary(data, var_names=["w", "scatter"])
    print(table.to_string(), end="\n\n")

    elpd = adfpp.loo(data)
    print(elpd, end="\n\n")
    two = [columns.index("bmi"), columns.index("bp")]
    less = export(x[:, two], y, [columns[i] for i in two])
    compared: Any = arviz.compare({"all columns": elpd, "bmi and bp": adfpp.loo(less)})
    print(compared.to_string(), end="\n\n")

    path = options.out / "diabetes.nc"
    data.to_netcdf(str(path))
    back: Any = arviz.from_netcdf(str(path))
    print(f"written and read back: {path}")
    path = options.out / "export_to_arviz.png"
    picture(path, back, elpd)
    print(f"picture: {path}")


if __name__ == "__main__":
    numpyro.set_platform("cpu")
    main()
