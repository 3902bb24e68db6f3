"""The expected log joint, its messages, and the local latents of a row, for a model that is written out."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy import special, stats

from adfpp.engine.families.product.conjugate import GaussianBlocks
from adfpp.engine.message_passing import Group, LogJoint

ALL = np.array([0])


def joint(discrete: bool) -> LogJoint:
    """y ~ N(mu + c + z, 1) with mu ~ N(0, 4), z ~ N(0, 1) and, if discrete, c in {0, 3} with probabilities .4, .6."""

    def prior(v: jax.Array, c: jax.Array, inputs: Any) -> list[jax.Array]:
        return [norm.logpdf(v[:1], 0.0, 2.0)]

    def row(v: jax.Array, c: jax.Array, inputs: Any) -> list[jax.Array]:
        shift = jnp.sum(c)
        chance = jnp.where(shift > 0, jnp.log(0.6), jnp.log(0.4)) if discrete else 0.0
        return [norm.logpdf(inputs[0], v[0] + v[1] + shift), norm.logpdf(v[1:2]) + chance]

    part = GaussianBlocks(("mu",), np.array([0]), 1)
    groups = (Group((0,), True, ((0, ALL),)), Group((), True, ((1, ALL),)))
    combinations = np.array([[0.0], [3.0]]) if discrete else np.zeros((1, 0))
    return LogJoint(1, (part,), prior, row, (Group((0,), False, ((0, ALL),)),), groups, combinations, 1)


@pytest.mark.slow
def test_local_latents_have_their_exact_posterior_given_mu() -> None:
    model = joint(True)
    certain = [(jnp.ones(1), jnp.full((1, 1), 0.5))]  # mu is known to be 0.5
    found = model.local_posterior(certain, [jnp.array([2.2])])
    logs = np.log([0.4, 0.6]) + stats.norm.logpdf(2.2, 0.5 + np.array([0.0, 3.0]), np.sqrt(2.0))
    np.testing.assert_allclose(found.log_z, np.logaddexp(*logs), rtol=1e-12)
    np.testing.assert_allclose(np.exp(found.log_p), special.softmax(logs), rtol=1e-12)
    np.testing.assert_allclose(found.mean[:, 0], (2.2 - 0.5 - np.array([0.0, 3.0])) / 2.0, rtol=1e-12)
    np.testing.assert_allclose(found.scale[:, 0, 0] ** 2, 0.5, rtol=1e-12)
    far = model.local_posterior(certain, [jnp.array([2.2])], 1.0)
    np.testing.assert_allclose(far.log_z, found.log_z, rtol=1e-12)


def test_messages_are_natural_parameters() -> None:
    model, y = joint(False), np.array([1.0, 2.5, -0.3])
    value = model.parts[0].initial(np.array([0.2]), np.array([0.7]), float)
    rows, weight = [jnp.asarray(y)], jnp.array([1.0, 2.0, 0.0])
    message = model.message(0, [value], rows, [], weight, model.local_posteriors([value], rows, []))
    residual = y - (y - 0.2) / 2.0  # y minus the mean of z
    np.testing.assert_allclose(message, np.array([residual @ [1, 2, 0], 3.0]), rtol=1e-11)
    np.testing.assert_allclose(model.prior_message(0, [value], []), [0.0, 0.25], rtol=1e-11, atol=1e-13)


@pytest.mark.slow
def test_bound_is_the_evidence_minus_a_divergence() -> None:
    model = joint(False)
    value = model.parts[0].initial(np.array([0.2]), np.array([0.7]), float)
    bound = model.local_posteriors([value], [jnp.array([1.4])], []).log_z[0] + model.global_bound([value], [])
    # E log N(y; mu, 2) with the optimal z given E mu: mean field, z ~ N((y - .2)/2, 1/2)
    z, v = 0.6, 0.5
    exact = -0.5 * (np.log(2 * np.pi) + (1.4 - 0.2 - z) ** 2 + 0.49 + v)
    exact += -0.5 * (np.log(2 * np.pi) + z**2 + v) + stats.norm(0, np.sqrt(v)).entropy()
    exact += -0.5 * (np.log(8 * np.pi) + (0.04 + 0.49) / 4) + stats.norm(0, 0.7).entropy()
    np.testing.assert_allclose(bound, exact, rtol=1e-12)
    assert float(bound) < stats.norm.logpdf(1.4, 0.0, np.sqrt(6.0))


@pytest.mark.slow
def test_batches_of_rows_do_not_change_the_sum(monkeypatch: Any) -> None:
    model = joint(True)
    value = model.parts[0].initial(np.array([0.2]), np.array([0.7]), float)
    rows, weight = [jnp.linspace(-2.0, 5.0, 21)], jnp.linspace(0.0, 1.0, 21)
    local = model.local_posteriors([value], rows, [])
    once = model.message(0, [value], rows, [], weight, local)
    monkeypatch.setattr(LogJoint, "batch", property(lambda _: 8))
    for a, b in zip(model.local_posteriors([value], rows, []), local, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_allclose(model.message(0, [value], rows, [], weight, local), once, rtol=1e-12)


@pytest.mark.slow
def test_message_is_weighted_by_the_discrete_values_of_a_row() -> None:
    value = joint(False).parts[0].initial(np.array([0.2]), np.array([0.7]), float)
    rows, weight = [jnp.array([1.0, 2.5])], jnp.ones(2)
    one, two = joint(False), joint(True)
    without = one.message(0, [value], rows, [], weight, one.local_posteriors([value], rows, []))
    local = two.local_posteriors([value], rows, [])
    both = two.message(0, [value], rows, [], weight, local)
    first = local._replace(log_p=jnp.array([[0.0, -jnp.inf], [0.0, -jnp.inf]]))  # the first value is 0
    np.testing.assert_allclose(two.message(0, [value], rows, [], weight, first), without, rtol=1e-12)
    assert abs(float(both[0]) - float(without[0])) > 0.1
