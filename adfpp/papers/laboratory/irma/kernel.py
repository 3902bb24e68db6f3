"""Computes IRMA and recursive least squares by ADF's update."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.integrate import quad_vec

import adfpp
from adfpp.engine.dynamics import Places, Transition
from adfpp.engine.families import Belief, Gaussian
from adfpp.papers.baselines import IRMA, Basis, Fourier, Polynomial, RecursiveLeastSquares
from adfpp.papers.baselines.regression import BasisLearner
from adfpp.papers.laboratory.bench import Bench, Outcome, learn_stream
from adfpp.papers.laboratory.irma.curves import (
    DOMAIN,
    GRID,
    ROWS,
    baseline_entry,
    bumps,
    draw_rows,
    learn_all,
)
from adfpp.papers.laboratory.record import Finding
from adfpp.papers.laboratory.students import normal_weights

RESET = "ADF, covariance reset"


@dataclass(frozen=True)
class Reset:
    """Dynamics that reset the covariance to that of the prior before every row, and do not change the mean."""

    def setup(self, family: Gaussian, places: Sequence[Places], prior: Belief) -> jax.Array:
        """The root of the prior's covariance."""
        return prior.scale

    def move(self, family: Gaussian, belief: Belief, setup: jax.Array, gap: jax.Array) -> Belief:
        """Resets the covariance."""
        return belief._replace(scale=setup)

    def transition(self, belief: Belief, setup: jax.Array, gap: jax.Array) -> Transition:
        """Raises, because a reset is not a transition of θ."""
        raise TypeError(
            "Reset discards the covariance, so it is not a transition of θ and a path cannot be smoothed under it: use "
            "other dynamics for smoothing."
        )


def kernel(bench: Bench) -> Outcome:
    """For each basis, the same curve by three computations."""
    count = bench.pick(60, ROWS)
    x, y = (np.asarray(a) for a in draw_rows(bench.key("irma-kernel"), count))
    findings, note = [], "rounding"

    def compare(
        what: str, way: str, curve: np.ndarray, reference: np.ndarray, tolerance: float | None, why: str
    ) -> None:
        """Adds the largest difference between two curves to the findings; without a tolerance it is reported only."""
        apart = float(np.max(np.abs(curve - reference)))
        held = None if tolerance is None else "theory"
        findings.append(
            Finding(
                f"{what}: largest difference", way, apart, theory=0.0, held=held, tolerance=tolerance or 0.0, why=why
            )
        )

    def path_of(learner: BasisLearner[Any], at: np.ndarray) -> np.ndarray:
        return np.asarray(learn_all(baseline_entry(learner), jnp.asarray(x), jnp.asarray(y))) @ at.T

    for name, basis in {"powers, order 4": Polynomial(4), "Fourier, order 3": Fourier(3), "7 bumps": bumps()}.items():
        features, at = basis.values(x, np), basis.values(GRID, np)
        reference = path_of(IRMA(basis), at)
        gram, _ = quad_vec(
            lambda s, basis=basis: np.outer(*2 * [basis.values(np.asarray(s), np)]), *DOMAIN, epsabs=1e-14
        )
        compare(f"IRMA on {name}", RESET, by_reset(basis, x, y) @ at.T, reference, 1e-10, note)
        compare(f"IRMA on {name}", "equation (8) solved", by_equation(gram, features, y) @ at.T, reference, 1e-10, note)
        reference = path_of(RecursiveLeastSquares(basis, 0.9, 0.0), at)
        compare(f"RLS on {name}", "ADF, discount 0.9", by_discount(basis, x, y) @ at.T, reference, 1e-10, note)
    lost = []
    for order, tolerance in bench.pick({10: 1e-9}, {6: 1e-10, 10: 1e-9}).items():
        basis, what = Polynomial(order), f"IRMA on powers, order {order}"
        reference, at = path_of(IRMA(basis), basis.values(GRID, np)), basis.orthonormal(GRID, np)
        features, why = basis.orthonormal(x, np), f"rounding, of powers of which x^{order} is the highest"
        compare(what, f"{RESET}, orthonormal functions", by_reset(basis, x, y, True) @ at.T, reference, tolerance, why)
        solved = by_equation(np.eye(basis.size), features, y) @ at.T
        compare(what, "equation (8) solved, orthonormal functions", solved, reference, tolerance, why)
        why = "the prior is read as a precision matrix, which has the condition number of A"
        compare(what, RESET, by_reset(basis, x, y) @ basis.values(GRID, np).T, reference, None, why)
        lost.append(f"{findings[-1].value:.0e} at order {order}")
    worst = max(f.value for f in findings if f.what.startswith("IRMA") and f.held)
    notes = [
        f"Curves are compared at {len(GRID)} points after each of {count} rows; their values are below 1. The kernel "
        "is given y ~ N(θ·φ, λ) and A⁻¹ as the covariance that is put back, which makes the same mean as noise 1 and "
        f"(λA)⁻¹. The three ways to IRMA differ by {worst:.1e} at most.",
        f"ADF on the powers as they are loses digits that the orthonormal functions keep: {', '.join(lost)}.",
    ]
    return Outcome(findings, [], notes, {"rows": count})


def by_reset(basis: Basis, x: np.ndarray, y: np.ndarray, orthonormal: bool = False) -> np.ndarray:
    """``(rows, M)`` means of ADF whose covariance is A⁻¹ before every row, with λ as the variance of the noise.

    Args:
        basis: The functions.
        x: ``(rows,)`` the inputs.
        y: ``(rows,)`` the values.
        orthonormal: Whether θ are coefficients of orthonormal functions with the same span, whose A is the identity.
    """
    functions, root = basis, jnp.eye(basis.size)
    if orthonormal:
        functions = basis.orthonormal
    else:  # a root of A⁻¹ is computed from a root of A, because the inverse of A would lose half of the digits
        _, upper = np.linalg.qr(np.linalg.inv(basis.root()).T)
        root = jnp.asarray(upper.T * np.sign(np.diag(upper)))

    def model(x: jax.Array, lam: jax.Array, y: jax.Array | None = None) -> None:
        prior = dist.MultivariateNormal(jnp.zeros(basis.size), scale_tril=root)
        theta = cast(jax.Array, numpyro.sample("theta", prior))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(functions(x) @ theta, jnp.sqrt(lam)), obs=y)

    lam = 0.1 * 1.05 ** np.arange(len(x))
    return means(adfpp.ADF(model, dynamics=Reset()), x, lam, y)


def by_discount(basis: Basis, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``(rows, M)`` means of ADF with a discount, from the prior N(0, I) and with noise 1."""

    def model(x: jax.Array, unused: jax.Array, y: jax.Array | None = None) -> None:
        theta = normal_weights(basis.size, "theta")
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(basis(x) @ theta, 1.0), obs=y)

    return means(adfpp.ADF(model, dynamics=adfpp.Discount(0.9)), x, x, y)


def means(adf: adfpp.ADF, *columns: np.ndarray) -> np.ndarray:
    """``(rows, N)`` the mean of the belief after each row; the columns are the model's arguments, with y last."""
    first = [a[:1] for a in columns]
    state = adf.init(jax.random.key(0), *first[:-1], y=first[-1])
    arrays = [jnp.asarray(a) for a in columns]

    def update(state: Any, row: list[jax.Array]) -> Any:
        return adf.update(state, *row[:-1], y=row[-1])[0]

    def row(_: jax.Array, t: jax.Array) -> list[jax.Array]:
        return [a[t][None] for a in arrays]

    return np.asarray(
        jax.jit(lambda: learn_stream(update, state, row, lambda s: s.belief.mean, jax.random.key(0), len(columns[0])))()
    )


def by_equation(gram: np.ndarray, features: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``(rows, M)`` solutions of equation (8), (A + φφᵀ/λ)θ' = Aθ + φy/λ.

    Args:
        gram: ``(M, M)`` A.
        features: ``(rows, M)`` φ at the inputs.
        y: ``(rows,)`` the values.
    """
    theta, path = np.zeros(len(gram)), []
    for t, row in enumerate(features):
        lam = 0.1 * 1.05**t
        theta = np.linalg.solve(gram + np.outer(row, row) / lam, gram @ theta + row * y[t] / lam)
        path.append(theta)
    return np.array(path)
