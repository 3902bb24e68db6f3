"""Online regression on a basis: the incremental risk functional and the two algorithms that it is held against.

The equations are those of The Incremental Risk Functional: Basics of a Novel Incremental Learning Approach (2013). A
row is one number x with a value y, the prediction is θ·φ(x), and the loss is the squared error.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from adfpp.papers.baselines.base import Estimate, Learner, positive
from adfpp.papers.baselines.bases import Basis


class Coefficients(NamedTuple):
    """What is kept where nothing but the function is.

    Attributes:
        coefficients: ``(M,)`` θ.
    """

    coefficients: jax.Array


class Discounted(NamedTuple):
    """What recursive least squares keeps.

    Attributes:
        coefficients: ``(M,)`` θ.
        precision: ``(M, M)`` discounted sum of φφᵀ, from the identity.
        moment: ``(M,)`` discounted sum of φy.
    """

    coefficients: jax.Array
    precision: jax.Array
    moment: jax.Array


class _OnBasis(Learner):
    """A learner of θ·φ(x), from θ = 0."""

    labels = False
    basis: Basis

    def _zeros(self, shape: tuple[int, ...], dtype: Any, given: dict[str, Any]) -> jax.Array:
        if shape not in ((), (1,)):
            raise ValueError(f"x has rows of shape {shape}; a basis of one number takes x of shape (n,) or (n, 1).")
        if given:
            raise TypeError(f"init takes nothing but the data here, and not {', '.join(given)}.")
        return jnp.zeros(self.basis.size, dtype)

    def _features(self, row: jax.Array) -> jax.Array:
        return self.basis(row.reshape(())).astype(row.dtype)

    def estimate(self, kept: Any) -> Estimate:
        """θ."""
        return Estimate(kept.coefficients)

    def output(self, kept: Any, row: jax.Array) -> jax.Array:
        """``()`` θ·φ(x)."""
        return kept.coefficients @ self._features(row)


@dataclass(frozen=True)
class GradientDescent(_OnBasis):
    """θ' = θ + rate·((y − θ·φ)φ − ridge·θ)/(|φ|² + ridge): the normalised gradient of the row's ridge loss.

    At rate 1 and ridge 0 the row is fitted exactly (passive-aggressive).

    Args:
        basis: The functions φ.
        rate: In (0, 2) stable.
        ridge: Of Tikhonov's ridge·θ·θ; the paper has .05.
    """

    basis: Basis
    rate: float = 1.0
    ridge: float = 0.05

    def __post_init__(self) -> None:
        positive(rate=self.rate)
        _not_negative(ridge=self.ridge)

    def begin(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: Any, **given: Any) -> Coefficients:
        """Zeros."""
        return Coefficients(self._zeros(shape, dtype, given))

    def step(
        self, kept: Coefficients, row: jax.Array, target: jax.Array, count: jax.Array
    ) -> tuple[Coefficients, jax.Array]:
        """One step down the gradient."""
        features = self._features(row)
        error = target - kept.coefficients @ features
        direction = error * features - self.ridge * kept.coefficients
        return Coefficients(kept.coefficients + self.rate * direction / (features @ features + self.ridge)), error**2


@dataclass(frozen=True)
class RecursiveLeastSquares(_OnBasis):
    """θ least in Σ_i forgetting^(t−i) (y_i − θ·φ_i)² + forgetting^(t−1) θ·θ + ridge θ·θ, exactly after every row.

    With ridge 0 it is Bayes' rule for y ~ N(θ·φ, 1) from the prior N(0, I) with the covariance divided by
    ``forgetting`` between rows: ``ADF`` with ``dynamics=Discount(forgetting)``. The sums are kept and solved anew for
    every row, since a covariance that is updated lets rounding errors grow by 1/forgetting a row.

    Args:
        basis: The functions φ.
        forgetting: In (0, 1].
        ridge: Of Tikhonov's ridge·θ·θ, which is not forgotten.
    """

    basis: Basis
    forgetting: float = 0.9
    ridge: float = 0.05

    def __post_init__(self) -> None:
        positive(forgetting=self.forgetting)
        _not_negative(ridge=self.ridge)
        if self.forgetting > 1:
            raise ValueError(f"forgetting must be in (0, 1]; it is {self.forgetting}.")

    def begin(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: Any, **given: Any) -> Discounted:
        """Zeros, with the identity as covariance."""
        zeros = self._zeros(shape, dtype, given)
        return Discounted(zeros, jnp.eye(self.basis.size, dtype=dtype), zeros)

    def step(
        self, kept: Discounted, row: jax.Array, target: jax.Array, count: jax.Array
    ) -> tuple[Discounted, jax.Array]:
        """The sums, discounted and with the row; then their solution."""
        features = self._features(row)
        fade = jnp.where(count > 1, self.forgetting, 1.0).astype(row.dtype)
        precision = fade * kept.precision + jnp.outer(features, features)
        moment = fade * kept.moment + target * features
        factor = jnp.linalg.cholesky(precision + self.ridge * jnp.eye(self.basis.size, dtype=row.dtype))
        loss = (target - kept.coefficients @ features) ** 2
        return Discounted(cho_solve((factor, True), moment), precision, moment), loss


@dataclass(frozen=True)
class IRMA(_OnBasis):
    """Least change of the whole function that a row calls for: (A + φφᵀ/λ)θ' = Aθ + φy/λ, equation (8).

    A is the Gram matrix of the basis on its domain; λ starts at ``lam`` and is multiplied by ``growth`` after every
    row. Solved as (9) it is θ' = θ + A⁻¹φ (y − θ·φ)/(λ + φ·A⁻¹φ): Bayes' rule for y ~ N(θ·φ, 1) from a Gaussian whose
    covariance is (λA)⁻¹ again before every row.

    Args:
        basis: The functions φ.
        lam: λ of the first row.
        growth: At least 1.
    """

    basis: Basis
    lam: float = 0.1
    growth: float = 1.05

    def __post_init__(self) -> None:
        positive(lam=self.lam)
        if self.growth < 1:
            raise ValueError(f"growth must be at least 1, for λ may not fall; it is {self.growth}.")

    def begin(self, rng_key: jax.Array, shape: tuple[int, ...], dtype: Any, **given: Any) -> Coefficients:
        """Zeros."""
        self.basis.root()  # refuses a basis without an inverse before anything is traced
        return Coefficients(self._zeros(shape, dtype, given))

    def step(
        self, kept: Coefficients, row: jax.Array, target: jax.Array, count: jax.Array
    ) -> tuple[Coefficients, jax.Array]:
        """Equations (8) and (9)."""
        features = self._features(row)
        root = jnp.asarray(self.basis.root(), row.dtype)
        white = solve_triangular(root, features, trans=1)  # R⁻ᵀφ, whose square is φ·A⁻¹φ
        error = target - kept.coefficients @ features
        stiffness = self.lam * self.growth ** (count - 1.0)
        gain = solve_triangular(root, white) / (stiffness + white @ white)
        return Coefficients(kept.coefficients + gain * error), error**2


def _not_negative(**settings: float) -> None:
    for name, value in settings.items():
        if not value >= 0:
            raise ValueError(f"{name} must not be below 0; it is {value!r}.")
