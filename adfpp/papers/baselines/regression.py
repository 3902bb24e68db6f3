"""Online regression on a basis: the incremental risk functional and the two algorithms with which it is compared.

The equations are those of The Incremental Risk Functional: Basics of a Novel Incremental Learning Approach (2013). A
row is one number x with a value y, the prediction is θ·φ(x), and the loss is the squared error.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from adfpp.papers.baselines.base import Estimate, Learner, not_negative, positive, refuse_options
from adfpp.papers.baselines.bases import Basis


class Coefficients(NamedTuple):
    """Arrays of a learner that keeps only its coefficients.

    Attributes:
        coefficients: ``(M,)`` θ.
    """

    coefficients: jax.Array


class Discounted(NamedTuple):
    """Arrays of recursive least squares.

    Attributes:
        coefficients: ``(M,)`` θ.
        precision: ``(M, M)`` discounted sum of φφᵀ, which starts at the identity.
        moment: ``(M,)`` discounted sum of φy.
    """

    coefficients: jax.Array
    precision: jax.Array
    moment: jax.Array


class HasCoefficients(Protocol):
    """Arrays that include coefficients."""

    @property
    def coefficients(self) -> jax.Array:
        """``(M,)`` θ."""
        ...


WithCoefficients = TypeVar("WithCoefficients", bound=HasCoefficients)


class BasisLearner(Learner[WithCoefficients]):
    """A learner of the coefficients of θ·φ(x), which start at 0.

    Attributes:
        basis: The functions φ.
    """

    labels = False
    basis: Basis

    def _zeros(self, shape: tuple[int, ...], dtype: np.dtype, options: dict[str, Any]) -> jax.Array:
        if shape not in ((), (1,)):
            raise ValueError(f"x has rows of shape {shape}; a basis of one number takes x of shape (n,) or (n, 1).")
        refuse_options(options)
        return jnp.zeros(self.basis.size, dtype)

    def _features(self, row: jax.Array) -> jax.Array:
        return self.basis(row.reshape(())).astype(row.dtype)

    def estimate(self, arrays: WithCoefficients) -> Estimate:
        """The coefficients θ."""
        return Estimate(arrays.coefficients)

    def output(self, arrays: WithCoefficients, row: jax.Array) -> jax.Array:
        """``()`` θ·φ(x)."""
        return arrays.coefficients @ self._features(row)


@dataclass(frozen=True)
class GradientDescent(BasisLearner[Coefficients]):
    """θ' = θ + rate·((y − θ·φ)φ − ridge·θ)/(|φ|² + ridge): the normalised gradient of the row's ridge loss.

    At rate 1 and ridge 0 the row is fitted exactly (passive-aggressive).

    Args:
        basis: The functions φ.
        rate: Step length; the algorithm is stable for rates in (0, 2).
        ridge: Factor of Tikhonov's penalty ridge·θ·θ; the paper has 0.05.
    """

    basis: Basis
    rate: float = 1.0
    ridge: float = 0.05

    def __post_init__(self) -> None:
        positive(rate=self.rate)
        not_negative(ridge=self.ridge)

    def initial(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: np.dtype, **options: Any) -> Coefficients:
        """The coefficients before any row, which are zeros."""
        return Coefficients(self._zeros(shape, dtype, options))

    def step(
        self, arrays: Coefficients, row: jax.Array, target: jax.Array, count: jax.Array
    ) -> tuple[Coefficients, jax.Array]:
        """One step down the gradient."""
        features = self._features(row)
        error = target - arrays.coefficients @ features
        direction = error * features - self.ridge * arrays.coefficients
        scale = features @ features + self.ridge
        return Coefficients(arrays.coefficients + self.rate * direction / scale), error**2


@dataclass(frozen=True)
class RecursiveLeastSquares(BasisLearner[Discounted]):
    """θ that minimises Σ_i forgetting^(t−i) (y_i − θ·φ_i)² + forgetting^(t−1) θ·θ + ridge θ·θ, exactly, at every row.

    With ridge 0 it is Bayes' rule for y ~ N(θ·φ, 1) from the prior N(0, I) with the covariance divided by
    ``forgetting`` between rows: ``ADF`` with ``dynamics=Discount(forgetting)``. The class keeps the sums and solves
    for θ again at every row, because rounding errors in an updated covariance would grow by 1/forgetting at each row.

    Args:
        basis: The functions φ.
        forgetting: Factor of the earlier rows' weights at each row, in (0, 1].
        ridge: Factor of Tikhonov's penalty ridge·θ·θ, which is not discounted.
    """

    basis: Basis
    forgetting: float = 0.9
    ridge: float = 0.05

    def __post_init__(self) -> None:
        positive(forgetting=self.forgetting)
        not_negative(ridge=self.ridge)
        if self.forgetting > 1:
            raise ValueError(f"forgetting must be in (0, 1]; it is {self.forgetting}.")

    def initial(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: np.dtype, **options: Any) -> Discounted:
        """Zeros, with the identity as precision."""
        zeros = self._zeros(shape, dtype, options)
        return Discounted(zeros, jnp.eye(self.basis.size, dtype=dtype), zeros)

    def step(
        self, arrays: Discounted, row: jax.Array, target: jax.Array, count: jax.Array
    ) -> tuple[Discounted, jax.Array]:
        """Discounts the sums, adds the row to them and solves for θ."""
        features = self._features(row)
        discount = jnp.where(count > 1, self.forgetting, 1.0).astype(row.dtype)
        precision = discount * arrays.precision + jnp.outer(features, features)
        moment = discount * arrays.moment + target * features
        factor = jnp.linalg.cholesky(precision + self.ridge * jnp.eye(self.basis.size, dtype=row.dtype))
        loss = (target - arrays.coefficients @ features) ** 2
        return Discounted(cho_solve((factor, True), moment), precision, moment), loss


@dataclass(frozen=True)
class IRMA(BasisLearner[Coefficients]):
    """Incremental risk minimisation: fits a row with the least change of the whole function, equation (8).

    (A + φφᵀ/λ)θ' = Aθ + φy/λ, where A is the Gram matrix of the basis on its domain; λ starts at ``lam`` and is
    multiplied by ``growth`` after every row. In the form (9) it is θ' = θ + A⁻¹φ (y − θ·φ)/(λ + φ·A⁻¹φ). That is Bayes'
    rule for y ~ N(θ·φ, 1) from a Gaussian whose covariance is reset to (λA)⁻¹ before every row.

    Args:
        basis: The functions φ.
        lam: λ of the first row.
        growth: Factor of λ at each row, at least 1.
    """

    basis: Basis
    lam: float = 0.1
    growth: float = 1.05

    def __post_init__(self) -> None:
        positive(lam=self.lam)
        if self.growth < 1:
            raise ValueError(f"growth must be at least 1, because λ may not fall; it is {self.growth}.")

    def initial(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: np.dtype, **options: Any) -> Coefficients:
        """The coefficients before any row, which are zeros."""
        self.basis.root()  # raises for a basis with a singular Gram matrix before anything is traced
        return Coefficients(self._zeros(shape, dtype, options))

    def step(
        self, arrays: Coefficients, row: jax.Array, target: jax.Array, count: jax.Array
    ) -> tuple[Coefficients, jax.Array]:
        """Learns one row by equations (8) and (9)."""
        features = self._features(row)
        root = jnp.asarray(self.basis.root(), row.dtype)
        white = solve_triangular(root, features, trans=1)  # R⁻ᵀφ, whose square is φ·A⁻¹φ
        error = target - arrays.coefficients @ features
        stiffness = self.lam * self.growth ** (count - 1.0)
        gain = solve_triangular(root, white) / (stiffness + white @ white)
        return Coefficients(arrays.coefficients + gain * error), error**2
