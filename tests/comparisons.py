"""A comparison whose every answer is known exactly, made once a worker and shared by the tests of judge and show."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta, AutoLaplaceApproximation, AutoNormal

import adfpp
from adfpp.judge.compare import Comparison, compare

N_ROWS = 60
NOISE = 0.7


def line(x: Any, y: Any = None) -> None:
    """Gaussian rows: the posterior is a Gaussian, and ADF and EP are exact. The latents' names are not in order."""
    w: Any = numpyro.sample("w", dist.Normal(0, 2).expand([x.shape[-1]]).to_event(1))
    b: Any = numpyro.sample("b", dist.Normal(1, 3))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w + b, NOISE), obs=y)


class Line:
    """Data of ``line``, and the posterior of (w, b) by the textbook's formula."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y = x, y
        self.design = np.column_stack([x, np.ones(len(x))])
        self.prior_mean, self.prior = np.array([0.0, 0.0, 1.0]), np.diag([4.0, 4.0, 9.0])
        precision = np.linalg.inv(self.prior)
        self.covariance = np.linalg.inv(precision + self.design.T @ self.design / NOISE**2)
        self.mean = self.covariance @ (precision @ self.prior_mean + self.design.T @ y / NOISE**2)
        self.sd = np.sqrt(np.diag(self.covariance))

    def draws(self, chains: int = 4, draws: int = 1000, seed: int = 1) -> dict[str, np.ndarray]:
        """Independent draws from the exact posterior."""
        theta = np.random.default_rng(seed).multivariate_normal(self.mean, self.covariance, (chains, draws))
        return {"w": theta[..., :2], "b": theta[..., 2]}

    def without(self, rows: Any) -> "Line":
        """The same without some rows."""
        return Line(np.delete(self.x, rows, 0), np.delete(self.y, rows))


@cache
def known() -> Line:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N_ROWS, 2)) + [0.0, 1.5]
    return Line(x, x @ [1.0, -2.0] + 0.5 + NOISE * rng.normal(size=N_ROWS))


@cache
def learner(name: str) -> Any:
    """One learner of each kind, which compiles once."""
    return {
        "adf": lambda: adfpp.ADF(line),
        "ep": lambda: adfpp.EP(line),
        "spherical": lambda: adfpp.ADF(line, family="spherical"),
    }[name]()


@cache
def comparison() -> Comparison:
    """All kinds of approximations beside exact draws."""
    adam = numpyro.optim.Adam(0.02)
    runs = {name: learner(name) for name in ("adf", "ep", "spherical")}
    guides = {"laplace": AutoLaplaceApproximation(line), "mean-field": AutoNormal(line), "point": AutoDelta(line)}
    runs |= {name: SVI(line, guide, adam, Trace_ELBO()) for name, guide in guides.items()}
    rows = known()
    return compare(
        jax.random.key(0),
        runs,
        rows.x,
        y=rows.y,
        reference=rows.draws(),
        num_samples=4000,
        svi_steps=1500,
        progress_bar=False,
    )


def against(draws: Any, *names: str, x: Any = None, y: Any = None, **options: Any) -> Comparison:
    """Learners of ``line`` beside draws."""
    rows = known()
    runs = {name: learner(name) for name in names or ("adf",)}
    x, y = rows.x if x is None else x, rows.y if y is None else y
    options = {"num_samples": 1000, "progress_bar": False} | options
    return compare(jax.random.key(0), runs, x, y=y, reference=draws, **options)


def chosen(found: Comparison, names: dict[str, str]) -> Comparison:
    """A comparison of some of the runs, which have other names.

    Args:
        found: The comparison of all runs.
        names: ``{name: new name}`` of the runs to keep; the reference keeps its own.
    """
    names = names | {found.reference: found.reference}

    def kept(values: Any) -> Any:
        return {new: values[old] for old, new in names.items() if old in values}

    return replace(
        found,
        fits={new: replace(found.fits[old], name=new) for old, new in names.items()},
        reweighted=kept(found.reweighted),
        elpd=kept(found.elpd),
        learners=kept(found.learners),
    )
