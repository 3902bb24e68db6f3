"""Bases: functions of one number whose linear combination is fitted, and their Gram matrix on a domain."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from adfpp.papers.baselines.base import positive

NODES = (
    32  # Gauss-Legendre nodes in a panel: exact for polynomials of degree 63, and enough for the panels chosen below
)


class Basis(ABC):
    """M functions φ of one number x in a domain [low, high]. A basis is a frozen dataclass."""

    domain: tuple[float, float]

    @property
    @abstractmethod
    def size(self) -> int:
        """M, the number of functions."""

    @property
    @abstractmethod
    def panels(self) -> int:
        """Number of pieces of the domain that are needed to integrate products of the functions to rounding error."""

    @abstractmethod
    def values(self, x: Any, xp: Any) -> Any:
        """``(..., M)`` the functions at x, ``(...)``.

        Args:
            x: Array of the module ``xp``.
            xp: ``numpy`` or ``jax.numpy``, which decides the kind of the arrays.
        """

    def __call__(self, x: ArrayLike) -> jax.Array:
        """``(..., M)`` the functions at x, ``(...)``."""
        return self.values(jnp.asarray(x), jnp)

    def root(self) -> np.ndarray:
        """``(M, M)`` upper triangular R with RᵀR = A, the Gram matrix.

        It comes from a QR decomposition of the functions at the nodes of a quadrature. A Cholesky factor of A would
        lose twice as many digits, and for powers of x few digits would remain.
        """
        return _root(self)

    def orthonormal(self, x: Any, xp: Any = jnp) -> Any:
        """``(n, M)`` orthonormal functions ψ = R⁻ᵀφ with the same span, at x ``(n,)``.

        Coefficients θ of φ are coefficients Rθ of ψ. If the functions are nearly dependent, as high powers of x are,
        then coefficients of ψ keep digits that those of φ lose.

        Args:
            x: ``(n,)`` numbers.
            xp: ``numpy`` or ``jax.numpy``, which decides the kind of the arrays.
        """
        solve = solve_triangular if xp is np else jax.scipy.linalg.solve_triangular
        return solve(xp.asarray(self.root()), self.values(xp.asarray(x), xp).T, trans=1).T

    def gram(self) -> np.ndarray:
        """``(M, M)`` A_ij = ∫ φ_i φ_j dx over the domain."""
        return self.root().T @ self.root()


@lru_cache(maxsize=64)
def _root(basis: Basis) -> np.ndarray:
    nodes, weights = np.polynomial.legendre.leggauss(max(NODES, basis.size))
    edges = np.linspace(*basis.domain, basis.panels + 1)
    half = 0.5 * np.diff(edges)[:, None]
    x = (edges[:-1, None] + half * (1.0 + nodes)).ravel()
    weighted = np.sqrt((half * weights).ravel())[:, None] * basis.values(x, np)
    _, root = np.linalg.qr(weighted)
    root = root * np.where(np.diag(root) < 0, -1.0, 1.0)[:, None]
    scale = np.sqrt(np.sum(root**2, 0))
    if np.any(np.diag(root) < 1e-13 * scale):  # about a hundred times the rounding error of the QR decomposition
        raise ValueError(
            f"The functions of {basis} are linearly dependent on {basis.domain}, to rounding error: take fewer "
            "functions, or functions that differ more."
        )
    root.flags.writeable = False
    return root


@dataclass(frozen=True)
class Polynomial(Basis):
    """The powers 1, x, …, x^order: equation (14) of the incremental risk functional, where the domain is [0, 3]."""

    order: int
    domain: tuple[float, float] = (0.0, 3.0)

    def __post_init__(self) -> None:
        _check(self, order=self.order)

    @property
    def size(self) -> int:
        """The number of functions, order + 1."""
        return self.order + 1

    @property
    def panels(self) -> int:
        """One panel, because the quadrature is exact."""
        return 1

    def values(self, x: Any, xp: Any) -> Any:
        """``(..., M)`` the powers of x."""
        return x[..., None] ** xp.arange(self.size)


@dataclass(frozen=True)
class Fourier(Basis):
    """1, and cos and sin of 2πkx/period for k = 1, …, order. If the period is None it is the length of the domain."""

    order: int
    domain: tuple[float, float] = (0.0, 3.0)
    period: float | None = None

    def __post_init__(self) -> None:
        _check(self, order=self.order)
        positive(period=1.0 if self.period is None else self.period)

    @property
    def _period(self) -> float:
        return self.domain[1] - self.domain[0] if self.period is None else self.period

    @property
    def size(self) -> int:
        """The number of functions, 2·order + 1."""
        return 2 * self.order + 1

    @property
    def panels(self) -> int:
        """One panel for every two periods of the fastest product."""
        return max(1, math.ceil(self.order * (self.domain[1] - self.domain[0]) / self._period))

    def values(self, x: Any, xp: Any) -> Any:
        """``(..., M)`` 1, the cosines, the sines."""
        angle = 2.0 * math.pi / self._period * x[..., None] * xp.arange(1, self.order + 1)
        return xp.concatenate([xp.ones_like(x)[..., None], xp.cos(angle), xp.sin(angle)], -1)


@dataclass(frozen=True)
class RadialBasis(Basis):
    """Bumps exp(−(x − c)²/(2 width²)), one for every centre c."""

    centres: Sequence[float]
    width: float
    domain: tuple[float, float] = (0.0, 3.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "centres", tuple(float(c) for c in self.centres))  # a tuple has a hash
        positive(width=self.width)
        _check(self, order=len(self.centres) - 1)

    @property
    def size(self) -> int:
        """The number of centres."""
        return len(self.centres)

    @property
    def panels(self) -> int:
        """One panel for every three widths."""
        return max(1, math.ceil((self.domain[1] - self.domain[0]) / (3.0 * self.width)))

    def values(self, x: Any, xp: Any) -> Any:
        """``(..., M)`` the bumps."""
        return xp.exp(-0.5 * ((x[..., None] - xp.asarray(self.centres)) / self.width) ** 2)


def _check(basis: Basis, order: int) -> None:
    low, high = (float(edge) for edge in basis.domain)
    object.__setattr__(basis, "domain", (low, high))
    if not low < high:
        raise ValueError(f"domain must be (low, high) with low below high; it is {basis.domain}.")
    if order < 0:
        raise ValueError(f"{type(basis).__name__} has no functions: give it an order of at least 0, or a centre.")
