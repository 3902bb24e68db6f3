"""One list of promises for every family, in both precisions, learned by ADF and by EP.

A new family is added to ``CASES`` and has to keep all of them.
"""

import copy
import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adfpp
from adfpp.engine.families import Family, combine
from adfpp.engine.status import Status
from tests import models

KEY = jax.random.key(0)
ROWS = 8
PART = 5  # of the rows, padded to as many as all of them: no other program is compiled


def mislabelled(x: Any, y: Any = None) -> None:
    """Logistic regression in which a share of the labels is noise."""
    w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([models.SIZE]).to_event(1))
    p: Any = numpyro.sample("p", dist.Beta(2, 5))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(probs=0.5 * p + (1 - p) * jax.nn.sigmoid(x @ w)), obs=y)


CASES: dict[str, tuple[Any, Any]] = {
    "full": (models.logistic, "full"),
    "diagonal": (models.probit, "diagonal"),
    "spherical": (models.probit, "spherical"),
    "product of Gaussian and Beta": (mislabelled, {"p": "beta"}),
    "product of Bernoulli": (models.signs, "full"),
}


class Case(NamedTuple):
    """A learner with data, and its belief before and after them."""

    name: str
    adf: adfpp.ADF
    ep: adfpp.EP
    x: np.ndarray
    y: np.ndarray
    before: Any
    after: Any
    info: Any
    tight: float  # relative rounding error that is allowed

    @property
    def family(self) -> Family:
        assert self.adf.session.latest is not None
        return self.adf.session.latest.family

    @property
    def size(self) -> int:
        assert self.adf.session.latest is not None
        return self.adf.session.latest.size


@pytest.fixture(scope="module", params=["float64", pytest.param("float32", marks=pytest.mark.slow)])
def precision(request: pytest.FixtureRequest) -> Iterator[str]:
    with jax.enable_x64(request.param == "float64"):
        yield request.param


LONG = "product of Gaussian and Beta"


@pytest.fixture(scope="module", params=[pytest.param(n, marks=pytest.mark.slow) if n == LONG else n for n in CASES])
def case(request: pytest.FixtureRequest, precision: str) -> Case:
    model, family = CASES[request.param]
    adf, ep = adfpp.ADF(model, family=family), adfpp.EP(model, family=family, max_sweeps=30)
    x, y, _ = models.rows(3, ROWS)
    before = adf.init(KEY, x, y=y)
    after, info = adf.update(before, x, y=y)
    tight = 1e-9 if precision == "float64" else 2e-4
    return Case(request.param, adf, ep, x, y, before, after, info, tight)


def same(a: Any, b: Any) -> bool:
    """Whether two states have the same bits."""
    leaves = [jax.tree.leaves(s._replace(rng_key=jnp.zeros(()))) for s in (a, b)]
    return all(np.array_equal(u, v) for u, v in zip(*leaves, strict=True))


def near(a: Any, b: Any, case: Case) -> None:
    for u, v in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(u, v, rtol=50 * case.tight, atol=50 * case.tight)


def test_dtype_is_the_precision_asked_for(case: Case, precision: str) -> None:
    assert {leaf.dtype.name for leaf in jax.tree.leaves(case.after.belief)} == {precision}
    assert case.info.log_z.dtype.name == precision


def test_starts_at_the_prior(case: Case) -> None:
    """Means and standard deviations of the prior, which these families contain."""
    mean, sd = (np.asarray(a) for a in (case.before.belief.mean, case.family.spread(case.before.belief, case.size)))
    if case.name == "product of Bernoulli":
        expected = np.full(3, 0.5), np.full(3, 0.5)
    elif "Beta" in case.name:
        expected = np.array([0, 0, 0, 2 / 7]), np.array([1, 1, 1, np.sqrt(10 / (49 * 8))])
    else:
        expected = np.zeros(3), np.ones(3)
    np.testing.assert_allclose(mean, expected[0], atol=10 * case.tight)
    np.testing.assert_allclose(sd, expected[1], rtol=10 * case.tight)


def test_rows_are_absorbed_and_scored(case: Case) -> None:
    """The log predictive density of the first row is that of the prior: by symmetry log 1/2."""
    assert case.info.status.tolist() == [Status.OK] * ROWS and int(case.after.rows) == ROWS
    np.testing.assert_allclose(case.info.log_z[0], np.log(0.5), rtol=10 * case.tight)
    assert not np.allclose(case.after.belief.mean, case.before.belief.mean, atol=1e-2)


@pytest.mark.slow
def test_one_batch_is_many(case: Case) -> None:
    """Rows in two calls, or in one."""
    state, _ = case.adf.update(case.before, case.x[:4], y=case.y[:4])
    state, _ = case.adf.update(state, case.x[4:], y=case.y[4:])
    near(state.belief, case.after.belief, case)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, "label"])
def test_a_refused_row_changes_no_bit(case: Case, wrong: Any) -> None:
    """NaN, infinity and a label outside of the support are refused and counted; the state is the same bit for bit."""
    x, y = case.x.copy(), case.y.copy()
    if wrong == "label":
        y[:] = 2
    else:
        x[:, 1] = wrong
    state, info = case.adf.update(case.after, x, y=y)
    expected = Status.OUT_OF_SUPPORT if wrong == "label" else Status.NOT_FINITE
    assert info.status.tolist() == [expected] * ROWS and not np.any(info.log_z)
    assert same(state, case.after)


def test_natural_parameters_there_and_back(case: Case) -> None:
    """The belief from its natural parameters, to rounding; its log normaliser is finite."""
    family, belief = case.family, case.after.belief
    natural = family.natural(belief)
    again, proper = family.from_natural(natural, case.size)
    assert bool(proper)
    np.testing.assert_allclose(again.mean, belief.mean, rtol=20 * case.tight, atol=20 * case.tight)
    np.testing.assert_allclose(family.spread(again, case.size), family.spread(belief, case.size), rtol=20 * case.tight)
    np.testing.assert_allclose(family.natural(again), natural, rtol=200 * case.tight, atol=200 * case.tight)
    assert np.isfinite(family.log_norm(belief)) and 0 <= family.gaussian_size(case.size) <= case.size


def test_changes_combine(case: Case) -> None:
    """What two posteriors have learned since one prior adds up, in any order; nothing learned adds nothing."""
    family, prior = case.family, case.before.belief
    other, _ = case.adf.update(case.before, case.x[:PART], y=case.y[:PART])
    one, two = case.after.belief, other.belief
    both, proper = combine(family, prior, [one, two], case.size)
    turned, _ = combine(family, prior, [two, one, prior], case.size)
    assert bool(proper)
    np.testing.assert_allclose(
        family.natural(both), family.natural(turned), rtol=1e3 * case.tight, atol=1e3 * case.tight
    )
    expected = family.natural(one) + family.natural(two) - family.natural(prior)
    np.testing.assert_allclose(family.natural(both), expected, rtol=1e3 * case.tight, atol=1e3 * case.tight)


def test_draws_have_the_moments_and_the_density(case: Case) -> None:
    """Draws have the belief's mean and sd, and the mean log density of draws is minus the entropy by another route."""
    family, belief = case.family, case.after.belief
    draws = np.asarray(family.sample(jax.random.key(1), belief, 20_000), float)
    sd = np.asarray(family.spread(belief, case.size), float)
    assert draws.shape == (20_000, case.size)
    np.testing.assert_allclose(draws.mean(0), belief.mean, atol=5 * sd.max() / np.sqrt(20_000))
    np.testing.assert_allclose(draws.std(0), sd, rtol=0.05, atol=0.01)
    # by importance sampling between two beliefs: the density integrates to one
    other = case.before.belief
    log_ratio = family.log_prob(belief, jnp.asarray(family.sample(jax.random.key(2), other, 20_000)))
    log_ratio -= family.log_prob(other, family.sample(jax.random.key(2), other, 20_000))
    np.testing.assert_allclose(np.mean(np.exp(np.asarray(log_ratio, float))), 1.0, atol=0.1)


def test_distance_is_zero_to_itself_and_large_to_others(case: Case) -> None:
    family = case.family
    assert float(family.distance(case.after.belief, case.after.belief)) <= 100 * case.tight
    assert float(family.distance(case.before.belief, case.after.belief)) > 0.1


def test_blocks_describe_the_belief(case: Case) -> None:
    """The belief as a prior of another run: the same belief again."""
    x, y, _ = models.rows(3, ROWS)
    start = case.adf.init(KEY, x, y=y, prior=case.adf.get_posterior(case.after))
    near(start.belief.mean, case.after.belief.mean, case)
    near(case.family.spread(start.belief, case.size), case.family.spread(case.after.belief, case.size), case)


def test_describes_itself(case: Case) -> None:
    """Every latent has a family, every factor a rule and a reason."""
    program = case.adf.session.latest
    assert program is not None
    for latent in program.latents:
        assert case.family.family_of(latent.name)
    for factor in program.factors:
        rule, why = case.family.describe(factor)
        assert rule and why and case.family.site_numbers(factor.field_size, case.size) > 0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))], ids=["deepcopy", "pickle"])
def test_states_can_be_copied(case: Case, copied: Any) -> None:
    again = copied(case.after)
    assert same(again, case.after) and again.fingerprint == case.after.fingerprint
    once, _ = case.adf.update(again, case.x[:PART], y=case.y[:PART])
    twice, _ = case.adf.update(case.after, case.x[:PART], y=case.y[:PART])
    assert same(once, twice)


@pytest.mark.parametrize("precision", ["float64", pytest.param("float32", marks=pytest.mark.slow)], indirect=True)
def test_inside_jit_scan_and_vmap_of_a_donated_state(case: Case) -> None:
    """Two streams at once, compiled with everything around them, one row at a time; the states given are used up.

    The second stream has the rows in another order.
    """

    def row(state: Any, data: Any) -> Any:
        state, info = case.adf.update(state, data[0][None], y=data[1][None])
        return state, info.log_z[0]

    def streams(states: Any, x: Any, y: Any) -> Any:
        return jax.vmap(lambda state, x, y: jax.lax.scan(row, state, (x, y)))(states, x, y)

    x, y = (np.stack([a, a[::-1]]) for a in (case.x, case.y))
    expected = [case.adf.update(s, x[i], y=y[i]) for i, s in enumerate((case.before, case.after))]
    given = jax.tree.map(lambda *a: jnp.stack(a), case.before, case.after)
    mapped, log_z = jax.jit(streams, donate_argnums=0)(given, jnp.asarray(x), jnp.asarray(y))
    for i, (state, info) in enumerate(expected):
        near(jax.tree.map(lambda a, i=i: a[i], mapped.belief), state.belief, case)
        np.testing.assert_allclose(log_z[i], info.log_z, rtol=50 * case.tight)
    assert given.belief.mean.is_deleted()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(case.after.belief))


def test_ep_does_not_depend_on_the_order(case: Case) -> None:
    """The fixed point is the same for rows in another order, and its sites and base make up the belief."""
    result = case.ep.run(KEY, case.x, y=case.y, progress_bar=False)
    order = np.random.default_rng(5).permutation(ROWS)
    turned = case.ep.run(jax.random.key(7), case.x[order], y=case.y[order], progress_bar=False)
    assert result.info.converged and turned.info.converged
    loose = 0.02 if "product" in case.name else 3e-3  # the tolerance of the run is 1e-3 standard deviations
    sd = np.asarray(case.family.spread(result.state.belief, case.size))
    np.testing.assert_allclose((result.state.belief.mean - turned.state.belief.mean) / sd, 0.0, atol=loose)
    np.testing.assert_allclose(result.info.log_evidence, turned.info.log_evidence, atol=loose)
    np.testing.assert_allclose(result.info.log_z[order], turned.info.log_z, atol=loose)


def test_ep_refuses_a_row_and_learns_the_others(case: Case) -> None:
    """The refused row's site is constant; the belief is that of the other rows."""
    x = case.x.copy()
    x[2] = np.nan
    with pytest.warns(adfpp.RowsMarked, match="1 NOT_FINITE"):
        result = case.ep.run(KEY, x, y=case.y, progress_bar=False)
    rest = np.delete(np.arange(ROWS), 2)
    alone = case.ep.run(KEY, case.x[rest], y=case.y[rest], progress_bar=False)
    assert result.info.status[2] == Status.NOT_FINITE and not np.any([np.any(a[2]) for a in result.state.sites])
    np.testing.assert_allclose(result.state.belief.mean, alone.state.belief.mean, atol=0.02)
