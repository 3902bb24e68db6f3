"""Likelihoods with closed-form tilts that NumPyro lacks. They are NumPyro distributions, so NUTS takes them, too."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro as _numpyro  # noqa: F401 (as a whole, before its modules: see adfpp._public)
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import promote_shapes, validate_sample
from numpyro.util import is_prng_key

from adfpp.engine.tilt import normal_tail, probit_tilt, rosenblatt_tilt
from adfpp.model.closed_forms import register_tilt

__all__ = ["Probit", "Rosenblatt"]


class Probit(Distribution):
    """A label in {0, 1} with ``P(1) = flip + (1 - 2 flip) Φ(field / noise)``.

    It is computed in the log domain: unlike ``Bernoulli(probs=ndtr(h))`` it neither clips nor loses its gradient in
    the tail. ``noise=0`` gives the noise-free step (the perceptron).

    Args:
        field: real, the linear predictor.
        noise: ≥ 0, sd of the Gaussian noise on the field.
        flip: in [0, 1], probability that the label is flipped afterwards.
    """

    arg_constraints = {
        "field": constraints.real,
        "noise": constraints.nonnegative,
        "flip": constraints.unit_interval,
    }
    # NumPyro declares a property and its own distributions assign constraints, as here
    support = constraints.boolean  # pyright: ignore[reportAssignmentType]
    reparametrized_params = ["field"]
    pytree_data_fields = ("field", "noise", "flip")
    field: Any  # arrays, numbers, or what JAX puts in their places when it takes a pytree apart
    noise: Any
    flip: Any

    def __init__(
        self, field: ArrayLike, noise: ArrayLike = 1.0, flip: ArrayLike = 0.0, *, validate_args: bool | None = None
    ) -> None:
        """Broadcasts the parameters against each other."""
        # NumPyro's stubs take what this returns for one of its arguments.
        promoted: Any = promote_shapes(field, noise, flip)
        self.field, self.noise, self.flip = promoted
        shape = jax.numpy.broadcast_shapes(jnp.shape(field), jnp.shape(noise), jnp.shape(flip))
        super().__init__(batch_shape=shape, validate_args=validate_args)

    def _log_step(self, sign: jax.Array | float) -> jax.Array:
        """Log Φ(sign·field / noise), with noise 0 the step (one half at the boundary)."""
        smooth = normal_tail(jnp.asarray(sign * self.field / jnp.where(self.noise == 0, 1.0, self.noise)))[0]
        hard = jnp.log(jnp.heaviside(sign * self.field, 0.5))
        return jnp.where(self.noise == 0, hard, smooth)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> jax.Array:
        """Log probability of labels; -inf outside {0, 1}."""
        log_step = self._log_step(jnp.where(jnp.asarray(value) > 0.5, 1.0, -1.0))
        if isinstance(self.flip, int | float) and self.flip == 0:
            log_prob = log_step
        else:
            flip = jnp.asarray(self.flip)
            spread = 1.0 - 2.0 * flip
            # p + (1-2p)Φ = (1-2p)·Φ(s h) + p for p ≤ 1/2, and (2p-1)·Φ(-s h) + 1-p above
            turned = jnp.where(flip > 0.5, self._log_step(jnp.where(jnp.asarray(value) > 0.5, -1.0, 1.0)), log_step)
            log_prob = jnp.logaddexp(jnp.log(jnp.abs(spread)) + turned, jnp.log(jnp.minimum(flip, 1.0 - flip)))
        return jnp.where((value == 0) | (value == 1), log_prob, -jnp.inf)

    def sample(self, key: jax.Array | None, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws labels of shape ``sample_shape + batch_shape``."""
        assert is_prng_key(key)
        assert key is not None
        shape = sample_shape + self.batch_shape
        noise_key, flip_key = jax.random.split(key)
        noisy = self.field + self.noise * jax.random.normal(noise_key, shape)
        label = (noisy > 0).astype(int)
        return jnp.where(jax.random.bernoulli(flip_key, self.flip, shape), 1 - label, label)

    @property
    def mean(self) -> jax.Array:
        """P(1)."""
        return self.flip + (1.0 - 2.0 * self.flip) * jnp.exp(self._log_step(1.0))

    @property
    def variance(self) -> jax.Array:
        """P(1) P(0)."""
        return self.mean * (1.0 - self.mean)


class Rosenblatt(Distribution):
    """The energy of the perceptron as a likelihood: ``exp(-beta max(0, -s field))`` for the label s = 2 value - 1.

    As in de Oliveira & Alamino (8)-(9) it is a Gibbs factor of the weights: at finite beta it does not sum to one
    over the labels (the sum is ``1 + exp(-beta |field|)``), so its evidence is not comparable with that of a
    normalised likelihood. ``beta = inf`` is the noise-free step, which does. Sampling uses the normalised
    probabilities, ``P(1) = sigmoid(beta field)``.

    Args:
        field: real, the linear predictor.
        beta: > 0, inverse temperature.
    """

    arg_constraints = {"field": constraints.real, "beta": constraints.positive}
    # NumPyro declares a property and its own distributions assign constraints, as here
    support = constraints.boolean  # pyright: ignore[reportAssignmentType]
    reparametrized_params = ["field"]
    pytree_data_fields = ("field", "beta")
    field: Any
    beta: Any

    def __init__(self, field: ArrayLike, beta: ArrayLike = float("inf"), *, validate_args: bool | None = None) -> None:
        """Broadcasts the parameters against each other."""
        promoted: Any = promote_shapes(field, beta)
        self.field, self.beta = promoted
        shape = jax.numpy.broadcast_shapes(jnp.shape(field), jnp.shape(beta))
        super().__init__(batch_shape=shape, validate_args=validate_args)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> jax.Array:
        """Minus beta times the potential; -inf outside {0, 1}."""
        wrong = jnp.maximum(0.0, -jnp.where(jnp.asarray(value) > 0.5, 1.0, -1.0) * self.field)
        energy = jnp.where(wrong > 0, self.beta * jnp.where(wrong > 0, wrong, 1.0), 0.0)
        return jnp.where((value == 0) | (value == 1), -energy, -jnp.inf)

    def sample(self, key: jax.Array | None, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws labels of shape ``sample_shape + batch_shape`` from the normalised probabilities."""
        assert is_prng_key(key)
        assert key is not None
        return jax.random.bernoulli(key, self.mean, sample_shape + self.batch_shape).astype(int)

    @property
    def mean(self) -> jax.Array:
        """P(1) of the normalised probabilities."""
        field = jnp.asarray(self.field)
        scaled = jnp.where(field == 0, 0.0, self.beta * jnp.where(field == 0, 1.0, field))
        return jax.nn.sigmoid(scaled)

    @property
    def variance(self) -> jax.Array:
        """P(1) P(0) of the normalised probabilities."""
        return self.mean * (1.0 - self.mean)


register_tilt(Probit, field="field", constants=("noise", "flip"))(probit_tilt)
register_tilt(Rosenblatt, field="field", constants=("beta",))(rosenblatt_tilt)
