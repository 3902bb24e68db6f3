"""What the tests of this package share: a small linear model with its exact posterior, and messages of refusals."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adfpp
from adfpp.engine.tilt import AUTO
from adfpp.model import Program, RowCheck, read

Array = Any
sample: Callable[..., Any] = numpyro.sample  # NumPyro's stubs declare less than it takes

KEY = jax.random.key(0)
ROWS, SCALE = 6, 0.7
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(ROWS, 2))
Y = X @ np.array([1.0, -0.5]) + 0.3 * _RNG.normal(size=ROWS)
GROUP = np.array([0, 1, 2, 0, 1, 2])
SEEN = np.array([True, True, False, True, False, True])
HOLES = np.where(SEEN, Y, np.nan)


def weights(size: int = 2) -> Array:
    """The latent of most models here."""
    return sample("w", dist.Normal(0, 1).expand([size]).to_event(1))


def rows(x: Array) -> Any:
    """The data plate, sized from an argument."""
    return numpyro.plate("rows", x.shape[0])


def linear(x: Array, y: Array | None = None) -> None:
    """The plainest model."""
    w = weights()
    with rows(x):
        sample("y", dist.Normal(x @ w, SCALE), obs=y)


def program(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Program:
    """The model as it is read."""
    return read(model, args, kwargs, None, AUTO)


def factor_log_density(program: Program, theta: np.ndarray, *row: Array, shared: Sequence[Array] = ()) -> np.ndarray:
    """Log-density of one row ``(S,)`` at θ ``(S, N)``, from its factors: their fields, and the tails behind them."""

    def total(theta: jax.Array, *row: jax.Array) -> jax.Array:
        inputs = [*(a[None] for a in row), *shared]
        out = jnp.zeros(())
        for group in program.factors:
            assert group.tail is not None
            _, field = group.matrices(theta, *inputs)
            log_factor = group.tail(*inputs).log_factor
            counted, _, _ = group.flags(*inputs)
            each = jnp.stack([log_factor(field[e], e) for e in range(group.count)])
            out = out + jnp.sum(jnp.where(counted, each, 0.0))
        return out

    arrays = [jnp.asarray(a) for a in row]
    return np.asarray(jax.jit(jax.vmap(total, (0, *(None for _ in arrays))))(jnp.asarray(theta), *arrays))


def refusal(model: Callable[..., Any], *args: Any, error: Any = adfpp.ModelError, **kwargs: Any) -> str:
    """The message with which ``init`` refuses a call."""
    with pytest.raises(error) as refused:
        adfpp.ADF(model).init(KEY, *args, **kwargs)
    return str(refused.value)


def says(message: str, *words: str) -> None:
    """Asserts that a message has some words."""
    missing = [word for word in words if word.lower() not in message.lower()]
    assert not missing, f"{missing} not in {message!r}"


def learned(model: Callable[..., Any], *args: Any, adf: adfpp.ADF | None = None, **kwargs: Any) -> Any:
    """Mean, covariance and info after one update with the data of ``init``."""
    adf = adf if adf is not None else adfpp.ADF(model)
    state, info = adf.update(adf.init(KEY, *args, **kwargs), *args, **kwargs)
    return np.asarray(state.belief.mean), np.asarray(state.belief.scale @ state.belief.scale.T), info


def exact(x: Array = X, y: Array = Y) -> tuple[np.ndarray, np.ndarray, float]:
    """Posterior mean, covariance and log evidence of ``linear``, from the textbook."""
    covariance = np.linalg.inv(np.eye(x.shape[1]) + x.T @ x / SCALE**2)
    marginal = x @ x.T + SCALE**2 * np.eye(len(y))
    log_z = -0.5 * (y @ np.linalg.solve(marginal, y) + np.linalg.slogdet(2 * np.pi * marginal)[1])
    return covariance @ x.T @ y / SCALE**2, covariance, float(log_z)


def assert_exact(got: Any, x: Array = X, y: Array = Y, log_z_shift: float = 0.0, tol: float = 1e-7) -> None:
    """Asserts that what was learned is the posterior of ``linear``."""
    mean, covariance, log_z = exact(x, y)
    np.testing.assert_allclose(got[0], mean, atol=tol)
    np.testing.assert_allclose(got[1], covariance, atol=tol)
    np.testing.assert_allclose(np.sum(got[2].log_z), log_z + log_z_shift, atol=10 * tol)
    assert np.all(np.asarray(got[2].status) == adfpp.Status.OK)


def looked_at(check: RowCheck, *rows: np.ndarray) -> bool:
    """Whether the check of a model without shared arrays is complete after these rows."""
    return check.done(rows, [], lambda: check.program.project_prior([]))
