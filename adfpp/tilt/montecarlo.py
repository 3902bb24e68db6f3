"""Quasi-Monte-Carlo importance sampling for tilts of larger fields.

Scrambled Sobol points, mapped through a mixture of a Gaussian fitted to the tilt's peak and the cavity itself; the
cavity part bounds the weights wherever the factor is bounded. Stein's identity for the tilted distribution,
``E[u] = E[∇ log factor]`` and ``E[u uᵀ] = I + E[∇ log factor uᵀ]``, gives control variates of mean zero, used with
the coefficients that the sample itself finds best.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from adfpp.marks import Marks
from adfpp.tilt.base import Tilted
from adfpp.tilt.peak import peak_fit


@dataclass(frozen=True)
class MonteCarlo:
    """Importance sampling of the tilted distribution with common, fixed points.

    Attributes:
        points: Number of points (a power of two suits Sobol's sequence).
        defensive: Share of them drawn from the cavity.
        report: A row whose estimated error is above this is marked ``Status.INACCURATE``.
    """

    points: int = 1024
    defensive: float = 0.25
    report: float = 0.1

    def reported(self, dtype: jnp.dtype, size: int = 1) -> float:
        """The error above which a row is marked."""
        return self.report

    def __call__(
        self,
        log_factor: Callable[[jax.Array], jax.Array],
        mean: jax.Array,
        scale: jax.Array,
        marks: Marks | None = None,
    ) -> Tilted:
        """Moments of ``N(u; 0, I) exp(log_factor(mean + scale @ u))``; shapes as in ``Quadrature``."""
        size, dtype = mean.shape[0], mean.dtype

        def in_cavity(u: jax.Array) -> jax.Array:
            return log_factor(mean + scale @ u)

        normal = jnp.asarray(normal_points(self.points, size), dtype)
        from_cavity = max(1, int(self.points * self.defensive))
        mode, root = peak_fit(in_cavity, size, dtype)
        inverse = jnp.linalg.inv(root)
        u = jnp.concatenate([normal[:from_cavity], mode + normal[from_cavity:] @ root.T])
        log_cavity = -0.5 * jnp.sum(u * u, -1)
        log_fit = -0.5 * jnp.sum(((u - mode) @ inverse.T) ** 2, -1) + jnp.linalg.slogdet(inverse)[1]
        share = from_cavity / self.points
        log_proposal = jnp.logaddexp(math.log(share) + log_cavity, math.log1p(-share) + log_fit)
        log_values, slopes = jax.vmap(jax.value_and_grad(in_cavity))(u)
        log_weights = log_values + log_cavity - log_proposal
        log_weights = jnp.where(jnp.isnan(log_weights), -jnp.inf, log_weights)
        top = jnp.max(log_weights)
        top = jnp.where(top > -jnp.inf, top, 0.0)
        weights = jnp.exp(log_weights - top)
        total = jnp.sum(weights)
        log_z = top + jnp.log(total / self.points)
        weights = weights / total

        slopes = jnp.where(jnp.isfinite(slopes), slopes, u)  # u - slope = 0: no control there
        shift, shift_error = _controlled(weights, u, u - slopes)
        centred = u - shift
        products = centred[:, :, None] * centred[:, None, :]
        # E[(u - d)(u - d)ᵀ] = I + E[(slope)(u - d)ᵀ] - d (0): Stein once more about the mean
        stein = jnp.eye(size, dtype=dtype) + _symmetric(slopes[:, :, None] * centred[:, None, :])
        stein = stein - _symmetric(shift[None, :, None] * centred[:, None, :])
        second, second_error = _controlled(weights, products, products - stein)
        second = second - jnp.outer(weights @ centred, weights @ centred)
        plain = jnp.einsum("n,nij->ij", weights, products)
        controlled_root = jnp.linalg.cholesky(second)
        fine = jnp.all(jnp.isfinite(controlled_root))
        tilted_root = jnp.where(fine, controlled_root, jnp.linalg.cholesky(plain))
        variances = jnp.sum(tilted_root**2, -1)
        error = jnp.maximum(
            jnp.max(shift_error / jnp.sqrt(variances)),
            jnp.max(second_error / jnp.sqrt(variances[:, None] * variances[None, :])),
        )
        effective = 1.0 / jnp.sum(weights**2)
        error = jnp.where(effective > 2 * size, error, jnp.inf)
        return Tilted(log_z, shift, tilted_root, error)


def _symmetric(a: jax.Array) -> jax.Array:
    return 0.5 * (a + jnp.swapaxes(a, -1, -2))


def _controlled(weights: jax.Array, plain: jax.Array, control: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Weighted mean of ``plain`` with ``control`` (of mean zero) taken out, and its standard error, elementwise."""
    w = weights.reshape((-1,) + (1,) * (plain.ndim - 1))
    mean_plain, mean_control = jnp.sum(w * plain, 0), jnp.sum(w * control, 0)
    # of the ratio estimator: errors enter with squared weights
    covariance = jnp.sum(w * w * (plain - mean_plain) * (control - mean_control), 0)
    variance = jnp.sum(w * w * (control - mean_control) ** 2, 0)
    slope = jnp.where(variance > 0, covariance / jnp.where(variance > 0, variance, 1.0), 0.0)
    estimate = mean_plain - slope * mean_control
    error = jnp.sqrt(jnp.sum((w * (plain - slope * control - estimate)) ** 2, 0))
    return estimate, error


@cache
def normal_points(points: int, size: int) -> np.ndarray:
    """Scrambled Sobol points as standard normal draws ``(points, size)``, the same in every call."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    sobol = qmc.Sobol(size, scramble=True, rng=np.random.default_rng(20))
    uniform = sobol.random(points)
    half = 0.5 / points
    return ndtri(np.clip(uniform, half, 1.0 - half))
