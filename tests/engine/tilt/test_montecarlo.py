"""Monte Carlo moments: exact integrals, standard errors that are right, tempering, refusals, and repeatable keys."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import seed, substitute, trace
from scipy.stats import norm

import models
from adfpp import ADF, EP, Moments, MonteCarlo, RowsMarked, Status
from adfpp.engine.dynamics import Static
from adfpp.engine.families.base import Answer
from adfpp.engine.kernel import Draws, Moving, judge, visit_rows
from adfpp.engine.tilt import Tilted
from adfpp.engine.tilt.base import Drawn
from adfpp.engine.tilt.montecarlo import Estimates, draw_points
from models import network
from tests import models as shared_models
from tests.engine.tilt.common import on_a_grid, spd_root, vector_errors

KEYS = 64
RULE = MonteCarlo()
LogFactor = Callable[[jax.Array], jax.Array]


def drawn(found: Estimates) -> Drawn:
    """The diagnostics of the points."""
    assert isinstance(found.tilted.drawn, Drawn)
    return found.tilted.drawn


def covariance(tilted: Tilted) -> np.ndarray:
    """From roots, ``(..., k, k)``."""
    root = np.asarray(tilted.root)
    return root @ np.swapaxes(root, -1, -2)


def by_nodes(factor: Callable[[np.ndarray], np.ndarray], size: int, nodes: int) -> tuple[float, np.ndarray, np.ndarray]:
    """(log Z, mean, covariance) by Gauss-Hermite nodes on every axis."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    points = np.stack(np.meshgrid(*[x] * size, indexing="ij"), -1).reshape(-1, size)
    weights = np.prod(np.stack(np.meshgrid(*[w / w.sum()] * size, indexing="ij"), -1).reshape(-1, size), -1)
    weights = weights * np.exp(factor(points))
    total = weights.sum()
    mean = weights @ points / total
    return float(np.log(total)), mean, (points * weights[:, None]).T @ points / total - np.outer(mean, mean)


# ---------------------------------------------------------------------------------------------- moments


def test_a_gaussian_tilt_has_no_error_at_all() -> None:
    rng = np.random.default_rng(0)
    size = 6
    prior, noise = (np.tril(rng.normal(size=(size, size))) / 3 + np.eye(size) for _ in range(2))
    mean, value = np.linspace(1, -1, size), np.linspace(-1, 2, size)
    normal: Any = dist.MultivariateNormal(value, scale_tril=noise)
    run = jax.jit(lambda m, s, key: MonteCarlo().estimates(normal.log_prob, m, s, key))
    found = run(jnp.asarray(mean), jnp.asarray(prior), jax.random.key(2))
    before, both = prior @ prior.T, prior @ prior.T + noise @ noise.T
    gain = before @ np.linalg.inv(both)
    log_z = -0.5 * (value - mean) @ np.linalg.solve(both, value - mean) - 0.5 * np.linalg.slogdet(2 * np.pi * both)[1]
    np.testing.assert_allclose(found.tilted.log_z, log_z, atol=1e-12)
    np.testing.assert_allclose(mean + prior @ found.tilted.shift, mean + gain @ (value - mean), atol=1e-12)
    np.testing.assert_allclose(prior @ covariance(found.tilted) @ prior.T, before - gain @ before, atol=1e-12)
    assert found.tilted.error < 1e-12 and drawn(found).rounds == 0
    assert np.allclose(found.tilted.root, np.tril(found.tilted.root))


LOADS = np.random.default_rng(0).normal(size=(7, 5))


def smooth(h: Any) -> Any:
    """A product of logistic likelihoods, log of."""
    return -jnp.logaddexp(0.0, -jnp.asarray(LOADS) @ h).sum()


def jump(h: jax.Array) -> jax.Array:
    """A likelihood with a jump: nothing that a derivative could tell."""
    return jnp.where(h.sum() > 1.0, 0.0, -4.0)


def far(h: jax.Array) -> jax.Array:
    """Narrow, with a kink at its peak, three sds from the cavity's mean in every direction."""
    return -jnp.sum(jnp.abs(h - 3.0)) / 0.05


def exact_smooth() -> tuple[float, np.ndarray, np.ndarray]:
    return by_nodes(lambda u: -np.logaddexp(0.0, -u @ LOADS.T).sum(-1), 5, 16)


def exact_jump() -> tuple[float, np.ndarray, np.ndarray]:
    """Along the diagonal a step under a normal density, across it nothing."""
    edge, low = 1 / np.sqrt(5), np.exp(-4.0)
    z = norm.sf(edge) + low * norm.cdf(edge)
    first = (1 - low) * norm.pdf(edge) / z
    second = ((1 - low) * edge * norm.pdf(edge)) / z + 1.0
    return float(np.log(z)), np.full(5, first / np.sqrt(5)), np.eye(5) + (second - first**2 - 1) / 5


def exact_far() -> tuple[float, np.ndarray, np.ndarray]:
    """Independent numbers: each an integral on a fine grid."""
    u = np.linspace(0.0, 6.0, 600_001)
    weights = norm.pdf(u) * 0.1 * 0.5 / 0.05 * np.exp(-np.abs(u - 3.0) / 0.05) * (u[1] - u[0])
    z, first = weights.sum(), weights @ u / weights.sum()
    return float(5 * np.log(z)), np.full(5, first), np.eye(5) * (weights @ (u - first) ** 2 / z)


CASES = {"smooth": (smooth, exact_smooth), "jump": (jump, exact_jump), "far": (far, exact_far)}


def estimates(name: str, rule: MonteCarlo = RULE) -> Estimates:
    """Estimates of one of the cases from 64 keys, under a standard normal cavity."""
    return jax.device_get(compiled(rule)(list(CASES).index(name), jax.random.split(jax.random.key(1), KEYS)))


@cache
def compiled(rule: MonteCarlo) -> Callable[..., Estimates]:
    """A rule on the cases, compiled once for all of them."""
    factors = [factor for factor, _ in CASES.values()]

    def run(which: jax.Array, keys: jax.Array) -> Estimates:
        def one(key: jax.Array) -> Estimates:
            return rule.estimates(lambda h: jax.lax.switch(which, factors, h), jnp.zeros(5), jnp.eye(5), key)

        return jax.vmap(one)(keys)

    return jax.jit(run)


@pytest.mark.parametrize("name", CASES)
def test_exact_integrals_and_their_errors(name: str) -> None:
    """The mean over 64 keys is right, and their spread is the standard error of each, within a factor of 2."""
    exact, found = CASES[name][1], estimates(name)
    assert drawn(found).reliable.all()
    upper = np.triu_indices(5)
    values = np.column_stack([found.tilted.log_z, found.tilted.shift, covariance(found.tilted)[:, *upper]])
    stated = np.column_stack([found.log_z, found.shift, found.covariance[:, *upper]])
    truth = exact()
    spread = values.std(0, ddof=1)
    ratios = spread / np.sqrt(np.mean(stated**2, 0))
    assert ratios.min() > 0.5 and ratios.max() < 2.0
    expected = np.concatenate([[truth[0]], truth[1], truth[2][upper]])
    assert (np.abs(values.mean(0) - expected) < 4.5 * spread / np.sqrt(KEYS) + 0.02 * spread).all()
    assert len(np.unique(found.tilted.shift[:, 0])) == KEYS
    # the tilt's own error is the worst of them, in its units
    sd = np.sqrt(np.diagonal(covariance(found.tilted), axis1=1, axis2=2))
    relative = (found.covariance / (sd[:, :, None] * sd[:, None])).max((1, 2))
    worst = np.maximum(np.maximum(found.log_z, (found.shift / sd).max(1)), relative)
    np.testing.assert_allclose(found.tilted.error, worst)


@pytest.mark.slow
def test_tempering_is_needed_and_reported() -> None:
    """Without rounds of tempering the narrow peak is out of reach, and no moment is called reliable."""
    assert (drawn(estimates("far")).rounds > 0).all()
    stuck = drawn(estimates("far", MonteCarlo(rounds=0)))
    assert not stuck.reliable.any() and (stuck.effective < MonteCarlo().least(5)).all()


def test_the_points_are_fixed_without_a_key_and_normal_with_one() -> None:
    first, second = (draw_points(None, 0, 1024, 4, jnp.float64)[1] for _ in range(2))
    assert np.array_equal(first, second)
    for dtype in (jnp.float32, jnp.float64):
        chosen, normal = draw_points(jax.random.key(3), 0, 1024, 4, dtype)
        assert normal.dtype == dtype and normal.shape == (1024, 4)
        # far better than the 0.03 of independent draws
        np.testing.assert_allclose(normal.mean(0), 0.0, atol=0.01)
        np.testing.assert_allclose(np.cov(np.asarray(normal).T), np.eye(4), atol=0.05)
        assert float(jnp.mean(chosen < 0.25)) == 0.25


def test_an_impossible_factor_has_no_mass() -> None:
    nowhere = jax.jit(lambda m, s: MonteCarlo(points=64)(lambda h: jnp.full((), -jnp.inf) - 0 * h[0], m, s))
    out = nowhere(jnp.zeros(4), jnp.eye(4))
    assert out.log_z == -np.inf
    assert not out.error <= RULE.reported(jnp.dtype("float64"))


@pytest.mark.slow
def test_four_numbers_against_a_grid_and_better_with_more_points() -> None:
    mean, scale = np.array([0.5, -0.2, 0.1, 1.0]), spd_root(9, 4) / 2
    truth = on_a_grid(lambda h: h[:, 2] - np.log(np.exp(h).sum(1)), mean, scale, points=41, reach=8.0)

    def softmax(h: jax.Array) -> jax.Array:
        return h[2] - jax.scipy.special.logsumexp(h)

    few, more = (
        jax.jit(lambda m, s, n=n: MonteCarlo(points=n)(softmax, m, s))(jnp.asarray(mean), jnp.asarray(scale))
        for n in (256, 8192)
    )
    for out in (few, more):
        assert vector_errors(out, truth) <= 4 * float(out.error)
    assert float(more.error) < 0.4 * float(few.error) < 0.1


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="points must be a power of two, at least 64; it is 1000"):
        MonteCarlo(points=1000)
    with pytest.raises(ValueError, match="defensive must lie in"):
        MonteCarlo(defensive=1.0)


# ---------------------------------------------------------------------------------------------- schedules


def net(x: Any, y: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(jnp.array([[1.5, -0.75], [0.0, 1.3]]), 0.7).to_event(2))
    c = numpyro.sample("c", dist.Normal(0, 2).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=jnp.tanh(x @ a) @ c), obs=y)


SMALL = Moments(monte_carlo=MonteCarlo(points=256))
ROWS = 8


@cache
def learner() -> ADF:
    """ADF on the network, whose programs the tests share."""
    return ADF(net, moments=SMALL)


def stream(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(rows, 2))
    return x, (x[:, 0] + 0.5 * rng.normal(size=rows) > 0).astype(int)


def equal(a: Any, b: Any) -> bool:
    return all(np.array_equal(u, v) for u, v in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.slow
def test_runs_repeat_bit_for_bit_and_in_chunks() -> None:
    """Chunks, also behind a refused row, give the same belief as one batch; another key gives another."""
    x, y = stream()
    x[3, 0] = np.nan
    adf = learner()
    start = adf.init(jax.random.key(0), x, y=y)
    once, info = adf.update(start, x, y=y)
    assert equal(once.belief, adf.update(start, x, y=y)[0].belief)
    expected = [Status.OK] * ROWS
    expected[3] = Status.NOT_FINITE
    assert info.status.tolist() == expected
    state, log_z = start, []
    for some in (slice(0, 5), slice(5, 8)):
        state, now = adf.update(state, x[some], y=y[some])
        log_z += now.log_z.tolist()
    np.testing.assert_allclose(log_z, info.log_z, rtol=1e-9)
    np.testing.assert_allclose(state.belief.mean, once.belief.mean, rtol=1e-8)
    other, _ = adf.update(start._replace(rng_key=jax.random.key(9)), x, y=y)
    gap = np.abs(np.asarray(other.belief.mean - once.belief.mean)) / np.sqrt(np.sum(once.belief.scale**2, 1))
    assert 1e-4 < gap.max() < 0.5
    # every row has points of its own: the same row twice is not integrated with the same ones
    _, repeated = adf.update(start, x[:1].repeat(ROWS, 0), y=y[:1].repeat(ROWS))
    assert repeated.error[0] != repeated.error[1]


@pytest.mark.slow
def test_ep_converges_with_random_points() -> None:
    """A row's points are the same in every sweep, so that the sites converge; they are near those of other points."""
    x, y = stream(16)
    ep = EP(net, moments=SMALL, tol=1e-4)
    result = ep.run(jax.random.key(0), x, y=y, progress_bar=False)
    assert result.info.converged and result.info.step[-1] < 1e-4
    again = ep.run(jax.random.key(0), x, y=y, progress_bar=False)
    assert equal(result.state.belief, again.state.belief)
    other = ep.run(jax.random.key(3), x, y=y, progress_bar=False)
    sd = np.sqrt(np.sum(np.asarray(result.state.belief.scale) ** 2, 1))
    gap = np.abs(np.asarray(other.state.belief.mean - result.state.belief.mean)) / sd
    assert 1e-4 < gap.max() < 0.5


def narrow(x: Any, y: Any = None) -> None:
    """Four numbers observed with hardly any noise: by themselves (1), or their distance from 0 alone (2)."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([4]).to_event(1))
    kink, shell = -jnp.sum(jnp.abs(w - 2.5)) / 0.05, -0.5 * ((jnp.sum(w * w) - 9.0) / 0.01) ** 2
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Exponential(jnp.exp(jnp.where(x == 1, kink, shell))), obs=y)


@pytest.mark.slow
def test_statuses_of_rows() -> None:
    """A kink far out is reached by tempering and says so; a thin shell is refused and leaves the state as it was."""
    adf = ADF(narrow)
    x, y = np.array([1, 2]), np.full(2, 1e-12)
    start = adf.init(jax.random.key(0), x, y=y)
    after, info = adf.update(start, x[:1], y=y[:1])
    assert info.status.tolist() == [Status.TEMPERED]
    np.testing.assert_allclose(after.belief.mean, 2.5, atol=0.05)
    same, info = adf.update(start, x[1:], y=y[1:])
    assert info.status.tolist() == [Status.UNRELIABLE] and info.log_z[0] == 0.0
    assert equal(same.belief, start.belief) and same.rows == start.rows
    with pytest.warns(RowsMarked, match="1 UNRELIABLE .refused: too few Monte Carlo points"):
        adf.run(jax.random.key(0), x[1:], y=y[1:], progress_bar=False)


def test_the_status_of_a_row_depends_on_its_points() -> None:
    x, y = stream()
    adf = learner()
    adf.init(jax.random.key(0), x, y=y)
    program = adf.session.latest
    assert program is not None and program.factors[0].draws
    yes, one = jnp.ones((), bool), jnp.ones(())

    def status(error: float, rounds: int, reliable: bool, log_z: float = -1.0) -> Status:
        points = Drawn(one, jnp.asarray(rounds), jnp.asarray(reliable))
        tilted = Tilted(jnp.asarray(log_z), jnp.zeros(4), jnp.eye(4), jnp.asarray(error), points)
        limit = program.family.error_limit(program.factors[0], tilted.shift.dtype)
        return Status(int(judge(Answer(tilted), limit, (yes, yes, yes))))

    assert status(0.01, 0, True) == Status.OK
    assert status(0.01, 2, True) == Status.TEMPERED
    assert status(0.3, 2, True) == Status.INACCURATE
    assert status(0.01, 6, False) == Status.UNRELIABLE
    assert status(np.inf, 6, False, -np.inf) == Status.UNRELIABLE


def test_rules_that_do_not_draw_pay_nothing() -> None:
    """The program of a group without Monte Carlo is the same with a key and without."""

    data = shared_models.rows()
    for adf, x, y, alike in ((ADF(shared_models.logistic), data.x, data.y, True), (learner(), *stream(), False)):
        state = adf.init(jax.random.key(0), x, y=y)
        program = adf.session.latest
        assert program is not None

        def fold(
            draws: Draws | None,
            adf: ADF = adf,
            program: Any = program,
            state: Any = state,
            rows: tuple[Any, ...] = (jnp.asarray(x), jnp.asarray(y)),
        ) -> str:
            moving, count = Moving(state.clock, state.rows > 0, ()), jnp.asarray(4)
            family: Any = adf.family

            def run(belief: Any) -> Any:
                groups = program.factors
                return visit_rows(family, Static(), groups, belief, moving, list(rows), [], None, count, draws=draws)

            return re.sub("0x[0-9a-f]+", "", str(jax.make_jaxpr(run)(state.belief)))

        assert (fold(None) == fold(Draws(state.rng_key, state.rows))) == alike


# ---------------------------------------------------------------------------------------------- the network


@pytest.mark.slow
def test_the_network_learns_and_its_field_is_small() -> None:
    """Registered, a simulation of itself, and better with every row; the field leaves out what enters linearly."""
    assert "network" in models.NETWORKS
    data, truth = network.simulate(jax.random.key(2), 128, hidden=3)
    assert np.array_equal(data["y"], network.simulate(jax.random.key(2), 128, hidden=3).data["y"])
    found = trace(seed(substitute(network.model, data=jax.tree.map(jnp.asarray, truth)), jax.random.key(0))).get_trace(
        **data
    )
    assert {k: s["fn"].shape() for k, s in found.items() if s["type"] == "sample" and k != "y"} == {
        k: v.shape for k, v in truth.items()
    }
    adf = ADF(network.model, moments=SMALL)
    plan = adf.explain(**data).factors[0]
    assert plan.field_size == 2 * 3 + 1 and plan.rule == "MonteCarlo"
    _, info = adf.update(adf.init(jax.random.key(0), **data), **data)
    assert np.mean(info.log_z[-48:]) > np.mean(info.log_z[:48]) + 0.05


@pytest.mark.slow
def test_a_field_of_eighty_numbers() -> None:
    """Every number's own tilt is known: a probit of each, without a closed form in sight."""
    size = 80
    slopes = jnp.linspace(0.2, 1.5, size)
    found = jax.jit(
        lambda key: MonteCarlo().estimates(
            lambda h: jax.scipy.special.log_ndtr(slopes * h).sum(), jnp.zeros(size), jnp.eye(size), key
        )
    )(jax.random.key(0))
    s = np.linspace(0.2, 1.5, size)
    np.testing.assert_allclose(found.tilted.log_z, size * np.log(0.5), atol=5 * float(found.log_z))
    exact = s / np.sqrt(1 + s * s) * np.sqrt(2 / np.pi)
    assert (np.abs(found.tilted.shift - exact) < 5 * found.shift).all()
    assert drawn(found).reliable and found.tilted.error < 0.1
