"""Factors with latents of the row itself: the joint field against a Gaussian model that is solved exactly."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import adfpp
from adfpp.engine.factor import LocalBase, Observation, ReadyFactor
from adfpp.engine.grouping import build_factors
from adfpp.engine.local_factor import LocalFactor
from adfpp.engine.tilt import AUTO, Moments, Variational
from adfpp.engine.trace import trace

Array = Any
N = 2  # numbers in θ; one local number follows them
JOINT, ROW = jax.ShapeDtypeStruct((N + 1,), jnp.float64), jax.ShapeDtypeStruct((1,), jnp.float64)
NOISE, MEAN, SD = 0.5, 0.3, 1.2  # of the observation, and of the base of the local number
Y = np.array([1.7])


class Component(NamedTuple):
    """The local latents of an element, as far as the engine looks at them."""

    numbers: tuple[int, ...]


def gaussian(moments: Moments = AUTO) -> LocalFactor:
    """y ~ N(θ_0 + 2 z, NOISE), z ~ N(MEAN, SD) for every row."""

    def row(joint: Array, y: Array) -> list[Array]:
        gap = (y - joint[0] - 2.0 * joint[2]) / NOISE
        log_prob = -0.5 * gap**2 - np.log(NOISE) - 0.5 * np.log(2 * np.pi)
        return [log_prob, jnp.full(1, MEAN), jnp.full(1, SD)]

    program = trace(row, JOINT, ROW)
    log_prob, mean, sd = program.outputs
    observation = Observation("y", 1, log_prob, None, None, None, components=(Component((0,)),))
    names = [("w", slice(0, N)), ("z", slice(N, N + 1))]
    (factor,) = build_factors(program, [observation], moments, names, LocalBase(N, mean, sd))
    assert isinstance(factor, LocalFactor)
    return factor


def separate(moments: Moments = AUTO) -> LocalFactor:
    """A rate exp(θ_0) times a local factor exp(z): the field has two numbers, of which θ enters one."""

    def row(joint: Array, y: Array) -> list[Array]:
        return [y * (joint[:1] + joint[2]) - jnp.exp(joint[:1]) * jnp.cosh(joint[2]), jnp.zeros(1), jnp.full(1, SD)]

    program = trace(row, JOINT, ROW)
    log_prob, mean, sd = program.outputs
    observation = Observation("y", 1, log_prob, None, None, None, components=(Component((0,)),))
    names = [("w", slice(0, N)), ("z", slice(N, N + 1))]
    (factor,) = build_factors(program, [observation], moments, names, LocalBase(N, mean, sd))
    assert isinstance(factor, LocalFactor)
    return factor


@pytest.mark.slow
def test_the_local_number_is_integrated_out() -> None:
    """The tilt, the marginal density and the posterior of z, by conjugate algebra."""
    factor = gaussian()
    assert factor.local is factor and (factor.numbers, factor.combinations, factor.field_size) == (1, 1, 1)
    assert factor.why.endswith("including 1 local number") and not factor.divisible and factor.tail is None

    @jax.jit
    def answers(y: Array, mean: Array, scale: Array) -> tuple[Any, ...]:
        rules = factor.rules(y)
        return (
            factor.matrices(jnp.array([0.4, 9.0]), y),
            factor.prepare(y)(0, mean, scale),
            rules.marginal(0, mean),
            rules.posterior(0, mean, scale),
            ReadyFactor(factor, [y], None).log_density()(mean, 0),
        )

    # the field is an affine function of θ_0: its slope and offset show in A and h
    (matrix, field), *_ = answers(jnp.asarray(Y), jnp.zeros(1), jnp.eye(1))
    slope = float(matrix[0, 0, 0])
    assert matrix.shape == (1, 1, N) and matrix[0, 0, 1] == 0.0
    offset = float(field[0, 0]) - slope * 0.4
    m, s = 0.1, 0.8  # the cavity of θ_0
    _, tilted, marginal, posterior, density = answers(
        jnp.asarray(Y), jnp.asarray([offset + slope * m]), jnp.asarray([[abs(slope) * s]])
    )
    # jointly Gaussian in (θ_0, z): y = θ_0 + 2 z + noise
    covariance, a = np.diag([s**2, SD**2]), np.array([1.0, 2.0])
    total = a @ covariance @ a + NOISE**2
    gap = Y[0] - a @ [m, MEAN]
    np.testing.assert_allclose(tilted.log_z, stats.norm.logpdf(gap, 0, np.sqrt(total)), atol=1e-7)
    np.testing.assert_allclose(np.sign(slope) * tilted.shift, [s / total * gap], atol=1e-6)
    np.testing.assert_allclose(tilted.root @ tilted.root.T, [[1 - s**2 / total]], atol=1e-6)
    given = stats.norm.logpdf(Y[0], m + 2 * MEAN, np.sqrt(4 * SD**2 + NOISE**2))
    np.testing.assert_allclose([marginal, density], given, atol=1e-7)
    np.testing.assert_allclose(posterior.mean, [MEAN + 2 * SD**2 / total * gap], atol=1e-6)
    np.testing.assert_allclose(posterior.sd, [SD * np.sqrt(1 - 4 * SD**2 / total)], atol=1e-6)
    assert posterior.weights.tolist() == [1.0]


def test_a_small_part_of_a_large_field_is_judged_by_the_large_one() -> None:
    """θ enters one number, but the integral has two dimensions, whose error is reported as such."""
    factor = separate()
    assert factor.field_size == 1 and factor.joint.cuts[0].size == 2
    assert factor.rule.reported(jnp.float64, 1) == factor.joint.rule.reported(jnp.float64, 2)
    tilt = jax.jit(lambda y: factor.prepare(y)(0, jnp.zeros(1), 0.3 * jnp.eye(1)))(jnp.asarray(Y))
    # the same by Gauss-Hermite nodes on both axes
    x, w = np.polynomial.hermite_e.hermegauss(80)
    h, z = 0.3 * x[:, None], SD * x[None, :]
    weights = np.outer(w, w) / w.sum() ** 2 * np.exp(Y[0] * (h + z) - np.exp(h) * np.cosh(z))
    np.testing.assert_allclose(tilt.log_z, np.log(weights.sum()), atol=1e-5)
    np.testing.assert_allclose(tilt.shift, [(weights.sum(1) @ x) / weights.sum()], atol=1e-5)


def test_powers_and_their_limit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'y'.*power < 1 with continuous local latents is not supported"):
        jax.eval_shape(lambda y: gaussian().prepare(y)(0, jnp.zeros(1), jnp.eye(1), 0.5), Y)
    limit = gaussian(Moments(quadrature=Variational(), monte_carlo=Variational()))
    with pytest.raises(ValueError, match=r"limit of power 0 of the factor of 'y'.*not supported"):
        jax.eval_shape(lambda y: limit.prepare(y)(0, jnp.zeros(1), jnp.eye(1)), Y)


def coins(x: Array, y: Array = None) -> None:
    """Discrete latents, and an effect of each row."""
    s: Any = numpyro.sample("s", dist.Bernoulli(0.4).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        z = numpyro.sample("z", dist.Normal(0.0, 0.7))
        numpyro.sample("y", dist.Normal(x @ s + z, 0.5), obs=y)


def test_discrete_latents_see_the_density_with_the_local_numbers_integrated_out() -> None:
    """Enumeration of the four states, with the variance of the row's effect added to the noise."""
    x, y = np.array([[1.0, -0.8]]), np.array([0.9])
    adf = adfpp.ADF(coins)
    state, info = adf.update(adf.init(jax.random.key(0), x, y=y), x, y=y)
    prior, sd = np.array([0.6, 0.4]), np.hypot(0.7, 0.5)
    states = [[prior[a] * prior[b] * stats.norm.pdf(y[0], x[0] @ [a, b], sd) for b in (0, 1)] for a in (0, 1)]
    joint = np.array(states)
    np.testing.assert_allclose(info.log_z, [np.log(joint.sum())], rtol=1e-10)
    exact = np.array([joint[1].sum(), joint[:, 1].sum()]) / joint.sum()
    np.testing.assert_allclose(adf.get_posterior(state).mean()["s"], exact, rtol=1e-10)
