"""What hangs together through local latents."""

import jax.numpy as jnp
import numpy as np
import numpyro

import adfpp
from adfpp.model import Joint
from tests.model.common import program, refusal
from tests.model.local.common import (
    PAIRS,
    Array,
    X,
    Y,
    brute,
    dist,
    indicators,
    outliers,
    run,
    sample,
    stats,
    tilted,
    weights,
)


def test_indicators_are_a_mixture() -> None:
    """One pass is the moment matching of a two-component mixture, written out in NumPy."""
    result = run(indicators, y=Y)
    mean, covariance, log_z = np.array([-1.0, 1.0]), 9.0 * np.eye(2), []
    for y in Y:
        totals = np.diag(covariance) + 1.0
        logs = np.log([0.4, 0.6]) + stats.norm(mean, np.sqrt(totals)).logpdf(y)
        log_z.append(np.logaddexp(*logs))
        chances = np.exp(logs - log_z[-1])
        gains = covariance.T / totals[:, None]  # row c: what component c moves
        means = mean + gains * (y - mean)[:, None]
        new = chances @ means
        each = [
            p * (covariance - np.outer(g, g) * t + np.outer(m - new, m - new))
            for p, g, t, m in zip(chances, gains, totals, means, strict=True)
        ]
        covariance = np.sum(each, 0)
        mean = new
    root = np.asarray(result.state.belief.scale)
    np.testing.assert_allclose(result.info.log_z, log_z, atol=1e-7)
    np.testing.assert_allclose(result.state.belief.mean, mean, atol=1e-7)
    np.testing.assert_allclose(root @ root.T, covariance, atol=1e-7)
    assert set(np.asarray(result.info.status)) == {adfpp.Status.OK}


def test_a_support_rules_a_combination_out() -> None:
    """A row lies in the support where one combination allows it, and has the density of those that do."""

    def model(y: Array = None) -> None:
        p = sample("p", dist.Beta(2, 3))
        with numpyro.plate("rows", y.shape[0]):
            late = sample("late", dist.Bernoulli(p))
            shift = dist.transforms.AffineTransform(2.0 * late, 1.0, domain=dist.constraints.positive)
            sample("y", dist.TransformedDistribution(dist.Exponential(1.0), shift), obs=y)

    y = np.array([3.0, 1.0, -1.0])
    read_as = program(model, y=y)
    (group,) = read_as.factors
    supported = [bool(group.flags(jnp.asarray(y[t : t + 1]))[1].all()) for t in range(3)]
    assert supported == [True, True, False]
    logs = Joint(read_as, (), {"y": y}).log_likelihood(np.zeros((1, 1)))["y"]
    expected = [np.log(0.5 * np.exp(-3.0) + 0.5 * np.exp(-1.0)), np.log(0.5) - 1.0, -np.inf]
    np.testing.assert_allclose(logs[0], expected, rtol=1e-10)


def test_several_observations_hang_together() -> None:
    """Two observations that share an indicator are one factor; a third that does not stays apart, closed form."""

    def model(y: Array = None, pairs: Array = None) -> None:
        w = weights()
        with numpyro.plate("rows", y.shape[0]):
            c = sample("c", dist.Bernoulli(0.3))
            sample("y", dist.Normal(w[0] + 3.0 * c, 1.0), obs=y)
            there = jnp.stack([jnp.ones(y.shape[0], bool), y > 0], -1)
            sample("pairs", dist.Normal(c[:, None] * 1.0, 0.5).mask(there).to_event(1), obs=pairs)
            sample("last", dist.Normal(w[1], 1.0), obs=y)

    read_as = program(model, y=Y, pairs=PAIRS)
    assert [(g.name, g.field_size, g.count) for g in read_as.factors] == [("last", 1, 1), ("y, pairs", 1, 1)]
    assert type(read_as.factors[0].rule).__name__ == "ClosedForm"
    theta = np.array([[0.3, -0.2]])
    logs = Joint(read_as, (), {"y": Y, "pairs": PAIRS}).log_likelihood(theta)
    shares = []
    for c, chance in ((0, 0.7), (1, 0.3)):
        pairs = stats.norm(c, 0.5).logpdf(PAIRS)
        shares.append(
            np.log(chance) + stats.norm(0.3 + 3 * c).logpdf(Y) + pairs[:, 0] + np.where(Y > 0, pairs[:, 1], 0)
        )
    assert set(logs) == {"y, pairs", "last"}
    np.testing.assert_allclose(logs["y, pairs"][0], np.logaddexp(*shares), atol=1e-10)


def test_elements_with_latents_of_their_own_stay_apart() -> None:
    """Two indicators a row, each for an element: two factors with a field of two, not one with four combinations."""

    def model(y: Array = None) -> None:
        mu = sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 2.0).to_event(1))
        with numpyro.plate("rows", y.shape[0], dim=-2), numpyro.plate("columns", 2, dim=-1):
            c = sample("c", dist.Bernoulli(0.5))
            sample("y", dist.Normal(jnp.where(c == 1, mu[0], mu[1]), 1.0), obs=y)

    (group,) = program(model, y=PAIRS).factors
    assert (group.count, group.field_size) == (2, 2)
    assert group.local is not None
    assert group.local.combinations == 2
    theta = np.array([[-0.5, 1.5]])
    logs = Joint(program(model, y=PAIRS), (), {"y": PAIRS}).log_likelihood(theta)["y"]
    each = np.log(0.5 * stats.norm(-0.5).pdf(PAIRS) + 0.5 * stats.norm(1.5).pdf(PAIRS))
    np.testing.assert_allclose(logs[0], each, atol=1e-10)


def test_what_combinations_share_is_one_number() -> None:
    """x @ w is the same for all values of the indicator."""

    def model(x: Array, y: Array = None) -> None:
        w = weights()
        with numpyro.plate("rows", x.shape[0]):
            c = sample("c", dist.Categorical(probs=jnp.array([0.2, 0.3, 0.5])))
            sample("y", dist.Normal(x @ w, jnp.array([0.1, 1.0, 5.0])[c]), obs=y)

    (group,) = program(model, X, y=Y).factors
    assert group.field_size == 1


def test_explain_shows_local_latents() -> None:
    """What they are and how they are integrated out."""
    plan = adfpp.ADF(outliers).explain(y=Y)
    assert [s.name for s in plan.latents] == ["w"]
    assert "bad     (1,)            enumerated: 2 values" in str(plan)
    assert "z       (1,)            joint field with a Gaussian base: its prior" in str(plan)
    assert "including 1 local number" in str(plan)


def test_refuses_too_many_combinations() -> None:
    """Nine binary values that meet in one observed one."""

    def model(y: Array = None) -> None:
        w = weights(9)
        with numpyro.plate("rows", y.shape[0], dim=-2), numpyro.plate("bits", 9, dim=-1):
            bits = sample("bits_of", dist.Bernoulli(0.5))
        with numpyro.plate("data", y.shape[0]):
            sample("y", dist.Normal(bits @ w, 1.0), obs=y)

    message = refusal(model, y=Y)
    assert "'bits_of'" in message
    assert "512 combinations" in message
    assert "MixtureSameFamily" in message


def test_a_prior_that_moves_with_a_latent_ties_the_row_to_it() -> None:
    """A random effect around an unknown mean: the rows learn of the mean, as of one with the effects integrated out."""

    def model(x: Array, y: Array = None) -> None:
        w = weights()
        with numpyro.plate("rows", x.shape[0]):
            z = sample("z", dist.Normal(x @ w, 0.7))
            sample("y", dist.Normal(z, 0.5), obs=y)

    result = run(model, X, y=Y)
    noise = 0.7**2 + 0.5**2
    precision = np.eye(2) + X.T @ X / noise
    root = np.asarray(result.state.belief.scale)
    np.testing.assert_allclose(result.state.belief.mean, np.linalg.solve(precision, X.T @ Y / noise), atol=1e-6)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(precision), atol=1e-6)
    evidence = stats.multivariate_normal(np.zeros(len(Y)), X @ X.T + noise * np.eye(len(Y))).logpdf(Y)
    np.testing.assert_allclose(np.sum(result.info.log_z), evidence, atol=1e-6)
    (latent,) = program(model, X, y=Y).local
    assert not latent.exact and latent.how == "joint field with a Gaussian base fitted to draws of its prior"


def test_nested_plates() -> None:
    """Responses of persons to items: a row is a person, whose ability enters all of its elements."""

    def model(y: Array) -> None:
        persons, items = numpyro.plate("persons", y.shape[0], dim=-2), numpyro.plate("items", y.shape[1], dim=-1)
        with items:
            b = sample("b", dist.Normal(0, 1))
        with persons:
            ability = sample("ability", dist.Normal(0, 1.2))
        with persons, items:
            sample("y", dist.Bernoulli(logits=ability - b), obs=y)

    y = np.array([[1, 0], [0, 0], [1, 1]])
    read_as = program(model, y)
    assert read_as.layout.named("row") == ("y",)
    assert [latent.name for latent in read_as.latents] == ["b"] and [s.name for s in read_as.local] == ["ability"]
    log_z, mean, _ = tilted(read_as, np.zeros(2), np.eye(2), y[0])

    def log_factor(b0: Array, b1: Array, ability: Array) -> np.ndarray:
        return -np.logaddexp(0, b0 - ability) - np.logaddexp(0, ability - b1)

    expected, means = brute(log_factor, [1.0, 1.0, 1.2])
    np.testing.assert_allclose(log_z, expected, atol=1e-6)
    np.testing.assert_allclose(mean, means[:2], atol=1e-6)
