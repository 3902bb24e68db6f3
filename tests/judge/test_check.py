"""The self-check: importance weights against exact answers, and verdicts on streams made to deserve them."""

import sys
from typing import Any

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_likelihood, potential_energy
from scipy import stats

import adfpp
from adfpp.judge.check import DO_NOT_USE, RUN_EP, RUN_NUTS, TRUST, check
from adfpp.learn.ep.ep import NotConverged
from adfpp.learn.importance import leave_one_out, reweighted
from adfpp.model import Joint, ModelError


def logistic(x: Any, y: Any = None) -> None:
    w: Any = numpyro.sample("w", dist.Normal(0, 2.5).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 2.5))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)


def noisy(x: Any, y: Any = None, noise: float = 0.5, m: Any = None) -> None:
    """A positive site, a simplex, a factor and a masked site."""
    s: Any = numpyro.sample("s", dist.HalfNormal(2.0))
    p: Any = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
    b = numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.factor("f", -0.1 * (b - x) ** 2)
        numpyro.sample("y", dist.Normal(s * x + p[0] + b, noise), obs=y)
        numpyro.sample("z", dist.Normal(b, 1.0).mask(m), obs=x)


def stream(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    return x, (x @ [1.0, -1.0, 0.5] + rng.logistic(size=n) > 0).astype(int)


# ------------------------------------------------------------------------------------------------ densities


@pytest.fixture(scope="module")
def joint() -> tuple[Joint, np.ndarray]:
    rng = np.random.default_rng(0)
    x, y, m = rng.normal(size=21), rng.normal(size=21), rng.random(21) > 0.5
    adf = adfpp.ADF(noisy)
    program = adf.get_posterior(adf.init(jax.random.key(0), x, y=y, m=m)).program
    return Joint(program, (x,), {"y": y, "m": m}), rng.normal(size=(6, program.size))


def test_log_joint_is_numpyros_potential(joint: tuple[Joint, np.ndarray]) -> None:
    """Transforms, factors and masks included."""
    j, theta = joint
    x, y, m = (np.asarray(a) for a in (j.rows[1], j.rows[2], j.rows[0])) if j.rows[0].dtype == bool else j.rows
    kwargs = dict(zip(j.program.layout.named("row"), j.rows, strict=True))
    x = kwargs.pop("x")
    for point, value in zip(theta, j.log_joint(theta), strict=True):
        params = {s.name: point[s.where].reshape(s.unconstrained_shape) for s in j.program.latents}
        assert value == pytest.approx(-float(potential_energy(noisy, (x,), kwargs, params)), rel=1e-10)


def test_log_likelihood_is_numpyros_row_by_row(joint: tuple[Joint, np.ndarray]) -> None:
    j, theta = joint
    kwargs = dict(zip(j.program.layout.named("row"), j.rows, strict=True))
    x = kwargs.pop("x")
    values = j.program.constrain(jnp.asarray(theta))
    expected = log_likelihood(noisy, values, x, **kwargs)
    found = j.log_likelihood(theta)
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-10)
    np.testing.assert_allclose(found["z"], np.where(kwargs["m"], expected["z"], 0.0), rtol=1e-10)
    np.testing.assert_allclose(found["f"], -0.1 * (np.asarray(values["b"])[:, None] - x) ** 2, rtol=1e-10)
    some = np.array([3, 0, 20])
    np.testing.assert_allclose(j.log_likelihood(theta, some)["y"], found["y"][:, some], rtol=1e-12)


def test_the_priors_draws_and_density_belong_together(joint: tuple[Joint, np.ndarray]) -> None:
    j, _ = joint
    theta = j.draw_prior(jax.random.key(0), 4000)
    values = j.program.constrain(jnp.asarray(theta))
    assert float(np.mean(values["s"])) == pytest.approx(2.0 * np.sqrt(2 / np.pi), abs=0.06)
    logs = j.log_prior(theta[:5])
    np.testing.assert_allclose(logs["s"], dist.HalfNormal(2.0).log_prob(values["s"][:5]), rtol=1e-10)
    np.testing.assert_allclose(logs["p"], np.full(5, np.log(2.0)), rtol=1e-10)


def test_other_arguments_are_refused(joint: tuple[Joint, np.ndarray]) -> None:
    j, _ = joint
    with pytest.raises(ModelError, match="was read with"):
        Joint(j.program, (j.rows[0],), {})
    adf = adfpp.ADF(logistic)
    x, y = stream(8, 0)
    post = adf.get_posterior(adf.init(jax.random.key(0), x, y=y))
    with pytest.raises(ModelError, match="shapes"):
        post.reweighted(jax.random.key(0), x[:, :2], y=y)


def level(y: Any = None, noise: float = 0.2) -> None:
    m = numpyro.sample("m", dist.Normal(0, 5))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(m, noise), obs=y)


def test_an_option_is_that_of_the_call() -> None:
    """Not that of the call that the model was read with."""
    y = np.array([0.3, -1.0, 2.0])
    adf = adfpp.ADF(level)
    program = adf.get_posterior(adf.init(jax.random.key(0), y=y, noise=0.1)).program
    found = Joint(program, (), {"y": y, "noise": 2.0})
    expected = stats.norm.logpdf(y, 0.5, 2.0)
    np.testing.assert_allclose(found.log_likelihood(np.array([[0.5]]))["y"][0], expected, rtol=1e-9)
    total = stats.norm.logpdf(0.5, 0, 5) + expected.sum()
    np.testing.assert_allclose(found.log_joint(np.array([[0.5]])), total, rtol=1e-9)
    np.testing.assert_allclose(found.log_joint(np.array([[0.5]]), np.array([1])), total - expected[[0, 2]].sum())


def test_replicas_leave_out_what_was_not_observed(joint: tuple[Joint, np.ndarray]) -> None:
    j, theta = joint
    kwargs = dict(zip(j.program.layout.named("row"), j.rows, strict=True))
    for row in range(6):
        found = j.replicate(jax.random.key(row), jnp.asarray(theta), row)
        assert set(found) == ({"y", "z"} if kwargs["m"][row] else {"y"})  # and factors have nothing to draw
        drawn, value = found["y"]
        assert drawn.shape == (6, 1) and value == kwargs["y"][row]


# ---------------------------------------------------------------------------------------------- the weights


def bernoulli(n: Any = None, y: Any = None) -> None:
    """One probability on the logit scale: everything can be integrated."""
    t = numpyro.sample("t", dist.Normal(0, 0.8))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=t), obs=y)


def integrals(y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Grid, log-likelihood of a 0 and a 1 there, and log joint plus the grid's log weight."""
    t = np.linspace(-12, 12, 20001)
    logs = np.stack([-np.logaddexp(0, t), -np.logaddexp(0, -t)])
    return t, logs, stats.norm.logpdf(t, 0, 0.8) + logs[y].sum(0) + np.log(t[1] - t[0])


@pytest.mark.slow
def test_weights_mend_a_wrong_posterior() -> None:
    """Few rows and a skewed posterior: weighted moments and evidence against integrals on a grid."""
    y = np.array([1, 1, 1, 1, 0])
    t, _, log_joint = integrals(y)
    mass = np.exp(log_joint - np.logaddexp.reduce(log_joint))
    mean, sd = mass @ t, np.sqrt(mass @ t**2 - (mass @ t) ** 2)
    adf = adfpp.ADF(bernoulli)
    state, _ = adf.update(adf.init(jax.random.key(0), y=y), y=y)
    post = adf.get_posterior(state)
    found = post.reweighted(jax.random.key(1), y=y, num_samples=20_000)
    assert found.ess > 18_000
    noise = sd / np.sqrt(found.ess)
    assert found.mean()["t"] == pytest.approx(mean, abs=4 * noise)
    assert found.sd()["t"] == pytest.approx(sd, abs=4 * noise)
    assert found.log_evidence == pytest.approx(np.logaddexp.reduce(log_joint), abs=0.02)
    assert found.moved([mean], [sd])[0] < 0.1  # ADF is good already
    drawn = found.sample(jax.random.key(2), (5000,))["t"]
    assert drawn.shape == (5000,) and drawn.mean() == pytest.approx(mean, abs=4 * sd / np.sqrt(4000))


@pytest.mark.parametrize(("width", "low", "high"), [(0.5, 0.55, 0.95), (0.7, 0.31, 0.71), (2.0, -9.0, 0.0)])
def test_k_hat_is_the_tails(width: float, low: float, high: float) -> None:
    """Target N(0, 1), proposal N(0, width²): ratios with a Pareto tail of shape 1 - width², or bounded ones."""
    theta = np.random.default_rng(0).normal(0, width, (20_000, 1))
    log_q = stats.norm.logpdf(theta[:, 0], 0, width)
    found = reweighted(theta, stats.norm.logpdf(theta[:, 0]), log_q, lambda t: {"t": t})
    assert low < found.k_hat < high
    assert ("not to be relied on" in repr(found)) == (found.k_hat > 0.7)


def test_moved_is_the_error_of_a_shifted_proposal() -> None:
    rng = np.random.default_rng(0)
    theta = rng.normal([0.6, 0.0], 1.0, (20_000, 2))
    target = stats.norm.logpdf(theta).sum(1)
    found = reweighted(theta, target, stats.norm.logpdf(theta, [0.6, 0.0]).sum(1), lambda t: {"t": t})
    assert found.moved([0.6, 0.0], [1.0, 1.0]) == pytest.approx((0.6, 1.0, 1.0), abs=0.06)
    wide = reweighted(
        2.0 * theta,
        stats.norm.logpdf(2.0 * theta, [1.2, 0.0]).sum(1),
        stats.norm.logpdf(2.0 * theta, [1.2, 0.0], 2.0).sum(1),
        lambda t: {"t": t},
    )
    assert wide.moved([1.2, 0.0], [2.0, 2.0]) == pytest.approx((0.0, 2.0, 2.0), abs=0.1)
    far = reweighted(theta + [8.0, 0.0], target, stats.norm.logpdf(theta, [0.6, 0.0]).sum(1), lambda t: {"t": t})
    assert far.k_hat > 0.7 or "not to be relied on" not in repr(far)


def test_leave_one_out_on_an_approximation() -> None:
    """From a proposal that is off, plain PSIS-LOO misleads; with the ratio of posterior to proposal it does not."""
    rng = np.random.default_rng(0)
    y = (rng.random(30) < 0.7).astype(int)
    t, logs, log_joint = integrals(y)
    exact = sum(np.logaddexp.reduce(log_joint) - np.logaddexp.reduce(log_joint - logs[value]) for value in y)
    mass = np.exp(log_joint - np.logaddexp.reduce(log_joint))
    mean, sd = mass @ t, np.sqrt(mass @ t**2 - (mass @ t) ** 2)
    draws = rng.normal(mean + 1.5 * sd, 1.2 * sd, 8000)
    at = np.stack([-np.logaddexp(0, draws), -np.logaddexp(0, -draws)])
    ratio = stats.norm.logpdf(draws, 0, 0.8) + at[y].sum(0) - stats.norm.logpdf(draws, mean + 1.5 * sd, 1.2 * sd)

    def log_lik(rows: np.ndarray) -> np.ndarray:
        return at[y[rows]].T

    corrected, plain = (leave_one_out(log_lik, r, 30, 1000) for r in (ratio, np.zeros(8000)))
    assert corrected.total == pytest.approx(exact, abs=0.1)
    assert abs(plain.total - exact) > 0.5
    assert corrected.k.max() < 0.7
    some = leave_one_out(log_lik, ratio, 30, 12)
    assert len(some.pointwise) == 12 and some.total == pytest.approx(exact, rel=0.35)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter:UserWarning")
@pytest.mark.slow
def test_leave_one_out_on_mcmc_is_arvizs() -> None:
    x, y = stream(30, 3)
    mcmc = MCMC(NUTS(logistic), num_warmup=200, num_samples=400, progress_bar=False)
    mcmc.run(jax.random.key(0), x, y=y)
    found = az.loo(az.from_numpyro(mcmc, log_likelihood=True), reff=1.0)
    expected = float(getattr(found, "elpd_loo", None) or found.elpd)
    logs = np.asarray(log_likelihood(logistic, mcmc.get_samples(), x, y=y)["y"])
    ours = leave_one_out(lambda rows: logs[:, rows], np.zeros(400), 30, 100)
    assert ours.total == pytest.approx(expected, abs=1e-6)
    assert ours.se == pytest.approx(float(found.se), rel=0.03)


# --------------------------------------------------------------------------------------------- the verdicts


@pytest.fixture(scope="module")
def mixed() -> tuple[np.ndarray, np.ndarray, adfpp.ADF]:
    x, y = stream(4000, 0)
    return x, y, adfpp.ADF(logistic)


def quick(adf: adfpp.ADF | adfpp.EP, result: Any, *args: Any, **kwargs: Any) -> Any:
    return check(adf, result, *args, predictions=64, num_samples=1000, orders=3, progress_bar=False, **kwargs)


def test_a_well_mixed_stream_is_fine(mixed: Any) -> None:
    x, y, adf = mixed
    result = adf.run(jax.random.key(0), x, y=y, progress_bar=False)
    found = quick(adf, result, x, y=y)
    assert found.verdict == TRUST
    assert found.k_hat < 0.7 and found.error < 0.3 and found.order_shift < 0.3
    assert found.pit_p > 0.001 and len(found.pit) == 63
    np.testing.assert_allclose(found.log_z.sum(), result.info.log_z.sum(), rtol=1e-6)
    assert found.statuses == {"OK": 4000}
    assert found.score == pytest.approx(result.info.log_z.mean(), rel=1e-6)
    assert str(found).startswith("trust it") and repr(found) == str(found)
    ranks, score = found.plot().axes
    assert sum(bar.get_height() for bar in ranks.patches[:5]) == 63  # the first are the bars
    assert score.lines[0].get_ydata()[-1] == pytest.approx(found.score)


def test_a_stream_sorted_by_its_label_is_not(mixed: Any) -> None:
    x, y, adf = mixed
    order = np.argsort(y, kind="stable")
    result = adf.run(jax.random.key(0), x[order], y=y[order], progress_bar=False)
    found = quick(adf, result, x[order], y=y[order])
    assert found.verdict == DO_NOT_USE
    assert found.order_shift > 10
    assert "huffle" in found.reasons[0] and "run EP" in found.reasons[0]
    shuffled = adf.run(jax.random.key(0), x[order], y=y[order], shuffle=True, progress_bar=False)
    again = quick(adf, shuffled, x[order], y=y[order])
    assert again.verdict == TRUST  # the same rows, folded in the random order that the result remembers
    np.testing.assert_allclose(again.log_z, np.asarray(shuffled.info.log_z)[shuffled.run.order], rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_too_few_rows_for_one_pass_ask_for_ep() -> None:
    x, y = stream(60, 1)
    adf = adfpp.ADF(logistic)
    found = quick(adf, adf.run(jax.random.key(0), x, y=y, progress_bar=False), x, y=y)
    assert found.verdict == RUN_EP and str(found).startswith("run EP\n")
    assert max(found.order_shift, found.order_spread, found.error) > 0.3


def test_refused_rows_and_a_state_without_memory(mixed: Any) -> None:
    x, y, adf = mixed
    x = x[:400].copy()
    x[::10, 0] = np.nan
    state, _ = adf.update(adf.init(jax.random.key(0), x, y=y[:400]), x, y=y[:400])
    found = quick(adf, state, x, y=y[:400])
    assert found.verdict == DO_NOT_USE
    assert found.statuses == {"OK": 360, "NOT_FINITE": 40}
    assert "10%" in found.reasons[0]


@pytest.mark.slow
def test_a_few_refused_rows_are_left_out_of_the_weights() -> None:
    x, y = stream(200, 4)
    holed = x.copy()
    holed[[20, 30], 0] = np.nan
    kept = np.delete(np.arange(200), [20, 30])
    adf = adfpp.ADF(logistic)
    state, info = adf.update(adf.init(jax.random.key(0), holed, y=y), holed, y=y)
    found, clean = quick(adf, state, holed, y=y), quick(adf, state, x[kept], y=y[kept])
    assert found.statuses == {"OK": 198, "NOT_FINITE": 2}
    assert any("1.00% of the rows were refused" in reason for reason in found.reasons)
    assert (found.k_hat, found.error) == pytest.approx((clean.k_hat, clean.error), rel=1e-6)
    post = adf.get_posterior(state)
    with pytest.raises(ValueError, match=r"2 of the rows have no finite log-likelihood \(20, 30\).*absorbed="):
        post.reweighted(jax.random.key(0), holed, y=y)
    absorbed = np.asarray(info.status) < adfpp.Status.NOT_FINITE
    again = post.reweighted(jax.random.key(0), holed, y=y, absorbed=absorbed)
    assert again.k_hat == pytest.approx(post.reweighted(jax.random.key(0), x[kept], y=y[kept]).k_hat)


def test_other_rows_than_those_folded_are_refused(mixed: Any) -> None:
    x, y, adf = mixed
    result = adf.run(jax.random.key(0), x[:64], y=y[:64], progress_bar=False)
    for reached in (result, result.state):
        with pytest.raises(ValueError, match="64 rows.* 32: pass all the rows"):
            quick(adf, reached, x[:32], y=y[:32])


@pytest.mark.slow
def test_a_likelihood_that_cannot_be_drawn_from_and_a_mask() -> None:
    """Ranks need both a sample and an observation; the rest of the check needs neither."""

    class Soft(dist.Distribution):
        support: Any = dist.constraints.real
        arg_constraints: Any = {}

        def __init__(self, centre: Any) -> None:
            self.centre = centre
            super().__init__(batch_shape=jnp.shape(centre))

        def log_prob(self, value: Any, intermediates: Any = None) -> Any:
            return -jnp.sqrt(1.0 + (value - self.centre) ** 2)

    def model(x: Any, y: Any = None, seen: Any = None) -> None:
        w: Any = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("soft", Soft(w * x), obs=y)
            numpyro.sample("y", dist.Normal(w * x, 1.0).mask(seen), obs=y)

    rng = np.random.default_rng(0)
    x, seen = rng.normal(size=64), rng.random(64) > 0.5
    y = np.where(seen, 0.5 * x + rng.normal(size=64), 0.5 * x)
    adf = adfpp.ADF(model)
    result = adf.run(jax.random.key(0), x, y=y, seen=seen, progress_bar=False)
    found = check(adf, result, x, y=y, seen=seen, num_samples=500, orders=0, progress_bar=False)
    assert len(found.pit) == seen.sum() and found.pit_p > 0.001
    assert np.isnan(found.order_shift) and found.k_hat < 0.7


def test_predictions_that_are_too_narrow_are_noticed() -> None:
    """A model with a fifth of the true noise."""
    y = np.random.default_rng(0).normal(1.0, 1.0, 200)
    adf = adfpp.ADF(level)
    result = adf.run(jax.random.key(0), y=y, progress_bar=False)
    found = quick(adf, result, y=y)
    assert found.pit_p < 1e-3
    assert found.verdict == TRUST and any("does not fit" in r for r in found.reasons)  # exact, of a wrong model
    calibrated = quick(adf, adf.run(jax.random.key(0), y=y, noise=1.0, progress_bar=False), y=y, noise=1.0)
    assert calibrated.pit_p > 0.01 and calibrated.reasons == ("nothing was found against it",)


@pytest.mark.slow
def test_ep_mends_a_stream_sorted_by_its_label() -> None:
    x, y = stream(1000, 0)
    order, ep = np.argsort(y, kind="stable"), adfpp.EP(logistic)
    result = ep.run(jax.random.key(0), x[order], y=y[order], progress_bar=False)
    assert quick(ep, result, x[order], y=y[order]).verdict == TRUST


@pytest.mark.slow
def test_the_scale_of_centred_groups_is_learned() -> None:
    """No row touches it but by way of the groups, whose prior's factors are visited after each batch."""

    def centred(group: Any, groups: int, y: Any = None) -> None:
        tau: Any = numpyro.sample("tau", dist.HalfNormal(3.0))
        with numpyro.plate("groups", groups):
            u: Any = numpyro.sample("u", dist.Normal(0, tau))
        with numpyro.plate("rows", group.shape[0]):
            numpyro.sample("y", dist.Normal(u[group], 1.0), obs=y)

    rng = np.random.default_rng(0)
    group = rng.integers(0, 8, 300)
    y = (0.5 * rng.normal(size=8))[group] + rng.normal(size=300)
    ep = adfpp.EP(centred)
    result = ep.run(jax.random.key(0), group, 8, y=y, progress_bar=False)
    found = quick(ep, result, group, 8, y=y)
    assert found.verdict in (TRUST, RUN_NUTS) and found.settling == f"settled after {result.info.sweeps}"
    assert found.error < 0.3 and 0.7 < found.sd_ratio[0] <= found.sd_ratio[1] < 1.3
    # the exact marginal of log tau, by quadrature over what the rows say of each group
    count, mean = np.bincount(group, minlength=8), np.bincount(group, y, minlength=8) / np.bincount(group, minlength=8)
    grid = np.linspace(-6, 4, 4001)
    spread = np.sqrt(np.exp(2 * grid)[:, None] + 1 / count)
    log_p = stats.norm.logpdf(mean, 0, spread).sum(1) + stats.halfnorm.logpdf(np.exp(grid), 0, 3) + grid
    mass = np.exp(log_p - np.logaddexp.reduce(log_p))
    centre, sd = mass @ grid, np.sqrt(mass @ grid**2 - (mass @ grid) ** 2)
    at = [s.where.start for s in result.posterior.latents if s.name == "tau"]
    belief = result.state.belief
    assert float(belief.mean[at[0]]) == pytest.approx(centre, abs=0.15 * sd)
    assert float(result.posterior.family.spread(belief, 9)[at[0]]) == pytest.approx(sd, rel=0.15)


@pytest.fixture(scope="module")
def visited() -> tuple[Any, Any, adfpp.EP, Any]:
    """Few rows, for which one pass is not enough, and EP is."""
    x, y = stream(60, 1)
    ep = adfpp.EP(logistic)
    return x, y, ep, ep.run(jax.random.key(0), x, y=y, progress_bar=False)


def test_ep_is_checked_by_its_settling(visited: Any) -> None:
    """No order, no stream: whether it has settled, and predictions of each row from all the others."""
    x, y, ep, result = visited
    found = quick(ep, result, x, y=y)
    assert found.verdict == TRUST and found.reasons == ("nothing was found against it",)
    assert np.isnan(found.order_shift) and found.orders == 0 and found.error < 0.1 and found.k_hat < 0.7
    np.testing.assert_array_equal(found.log_z, result.info.log_z)
    assert found.statuses == {"OK": 60} and found.settling == f"settled after {result.info.sweeps}"
    assert "sweeps             settled" in str(found) and "leave-one-out" in str(found)
    assert "order of the rows" not in str(found)
    titles = [axes.get_title(loc="left") for axes in found.plot().axes]
    assert "Leave-one-out" in titles[1]
    # what the score says, by importance weights
    post, joint = result.posterior, Joint(result.posterior.program, (x,), {"y": y})
    theta = np.asarray(post.draw(jax.random.key(3), 4000))
    ratio = joint.log_joint(theta) - np.asarray(post.distribution.log_prob(theta))
    weighed = leave_one_out(lambda rows: joint.log_likelihood(theta, rows)["y"], ratio, 60, 60)
    assert found.score == pytest.approx(weighed.total / 60, abs=0.01)
    with pytest.raises(ValueError, match="60 rows.* 30: pass all the rows"):
        quick(ep, result, x[:30], y=y[:30])
    with pytest.raises(TypeError, match="result is one of EP"):
        quick(adfpp.ADF(logistic), result, x, y=y)


def test_a_state_of_ep_is_visited_once_more(visited: Any) -> None:
    x, y, ep, result = visited
    found = quick(ep, result.state, x, y=y)
    assert found.verdict == TRUST and found.settling == "settled after 1" and ep.max_sweeps > 1
    np.testing.assert_allclose(found.log_z, result.info.log_z, atol=5e-3)
    cold = ep.init(jax.random.key(0), x, y=y)
    assert quick(ep, cold, x, y=y).verdict == DO_NOT_USE
    with pytest.raises(TypeError, match="takes what ep.run gave"):
        adf = adfpp.ADF(logistic)
        quick(ep, adf.init(jax.random.key(0), x, y=y), x, y=y)


def test_ep_that_has_not_settled_is_not_trusted(visited: Any) -> None:
    """Sites taken back half-way: importance weights do not find them near, and it is not to be used."""
    x, y, ep, result = visited
    away = result.state._replace(belief=result.state.belief._replace(mean=result.state.belief.mean + 3.0))
    moved = result.info._replace(converged=False, step=np.array([2.0, 0.9]), sweeps=2)
    found = quick(ep, type(result)(away, moved), x, y=y)
    assert found.verdict == DO_NOT_USE and "not settled after 2 sweeps" in found.reasons[0]
    near = quick(ep, type(result)(result.state, moved), x, y=y)
    assert near.verdict == RUN_NUTS and "run NUTS" in near.reasons[0]  # good weights know that it is near
    held = result.info._replace(converged=False, status=np.where(np.arange(60) == 7, adfpp.Status.HELD, 0))
    found = quick(ep, type(result)(result.state, held), x, y=y)
    assert found.verdict == RUN_NUTS and "1 rows (7) are held back" in found.reasons[0]
    assert np.isnan(found.log_z[7]) and np.isfinite(found.log_z).sum() == 59
    assert found.statuses == {"OK": 59, "HELD": 1}


@pytest.mark.slow
def test_one_sweep_of_a_hard_one_is_not_trusted() -> None:
    """Separable rows and a wide prior, sorted by label."""
    x = np.sort(np.random.default_rng(0).normal(size=(40, 1)), 0)
    y = (x[:, 0] > 0).astype(int)
    ep = adfpp.EP(logistic, max_sweeps=1, schedule="parallel", damping=0.1)
    with pytest.warns(NotConverged):
        result = ep.run(jax.random.key(0), x, y=y, progress_bar=False)
    found = quick(ep, result, x, y=y)
    assert found.verdict in (RUN_NUTS, DO_NOT_USE) and "not settled" in found.reasons[0]


def test_ep_notices_a_model_that_does_not_fit() -> None:
    """A fifth of the true noise: leave-one-out ranks pile up at the ends, though the posterior is exact."""
    y = np.random.default_rng(0).normal(1.0, 1.0, 200)
    ep = adfpp.EP(level)
    found = quick(ep, ep.run(jax.random.key(0), y=y, progress_bar=False), y=y)
    assert found.verdict == TRUST and found.pit_p < 1e-3 and any("from all the others" in r for r in found.reasons)
    result = ep.run(jax.random.key(0), y=y, noise=1.0, progress_bar=False)
    calibrated = check(ep, result, y=y, noise=1.0, predictions=200, num_samples=1000, progress_bar=False)
    assert calibrated.pit_p > 0.01 and calibrated.reasons == ("nothing was found against it",)


def test_leave_one_out_ranks_are_exact_in_a_conjugate_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows, so that a rank among predictions from all rows, its own among them, would be seen to be another."""
    monkeypatch.setattr(sys.modules["adfpp.selfcheck"], "_DRAWS", 8000)
    y, ep = np.array([-0.7, 0.3, 1.8]), adfpp.EP(level)
    result = ep.run(jax.random.key(0), y=y, noise=1.0, progress_bar=False)
    found = check(ep, result, y=y, noise=1.0, num_samples=8000, progress_bar=False)
    without, own = 1 / 25 + 2.0, 1 / 25 + 3.0
    exact = stats.norm.cdf(y, (y.sum() - y) / without, np.sqrt(1 + 1 / without))
    assert np.abs(stats.norm.cdf(y, y.sum() / own, np.sqrt(1 + 1 / own)) - exact).max() > 0.05
    np.testing.assert_allclose(found.pit, exact, atol=0.02)
    assert np.isnan(found.pit_p)  # three ranks are no distribution


@pytest.mark.slow
def test_with_dynamics_only_predictions_are_looked_at(mixed: Any) -> None:
    x, y, _ = mixed
    adf = adfpp.ADF(logistic, dynamics=adfpp.RandomWalk(1e-3))
    gaps = np.full(200, 2.0)
    result = adf.run(jax.random.key(0), x[:200], y=y[:200], dt=gaps, progress_bar=False)
    found = quick(adf, result, x[:200], y=y[:200], dt=gaps)
    assert np.isnan(found.k_hat) and np.isnan(found.order_shift) and found.reweighted is None
    again = adf.run(jax.random.key(0), x[:200], y=y[:200], dt=2.0, progress_bar=False)  # one gap for all rows
    np.testing.assert_array_equal(quick(adf, again, x[:200], y=y[:200], dt=2.0).log_z, found.log_z)
    np.testing.assert_allclose(found.log_z.sum(), result.info.log_z.sum(), rtol=1e-6)
    assert "not looked at" in str(found)


@pytest.mark.slow
def test_a_second_stream_is_checked_against_its_own_start(mixed: Any) -> None:
    """Posterior as prior: the prior of the second stream is the first one's posterior, which its result remembers."""
    x, y, adf = mixed
    first = adf.run(jax.random.key(0), x[:2000], y=y[:2000], progress_bar=False).posterior
    result = adf.run(jax.random.key(0), x[2000:], y=y[2000:], prior=first, progress_bar=False)
    found = quick(adf, result, x[2000:], y=y[2000:])
    assert found.verdict == TRUST and found.error < 0.2
    wrong = result.posterior.reweighted(jax.random.key(0), x[2000:], y=y[2000:])  # the model's vague prior instead
    spread = result.posterior.family.spread(result.state.belief, 4)
    assert wrong.moved(result.state.belief.mean, spread)[0] > 0.2


@pytest.mark.slow
def test_nuts_begins_at_the_posterior(mixed: Any) -> None:
    """Its covariance as the mass matrix, in NumPyro's own order of sites, and draws from it to begin at."""

    def two(x: Any, y: Any = None) -> None:
        b = numpyro.sample("b", dist.Normal(0, 2))
        a = numpyro.sample("a", dist.HalfNormal(1.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(a * x[:, 0] + b, 1.0), obs=y)

    x, _, _ = mixed
    y = 0.5 * x[:50, 0] + 3.0 + np.random.default_rng(0).normal(size=50)
    adf = adfpp.ADF(two)
    post = adf.run(jax.random.key(0), x[:50], y=y, progress_bar=False).posterior
    kernel = NUTS(two, inverse_mass_matrix=post.inverse_mass_matrix(), dense_mass=True, adapt_mass_matrix=False)
    mcmc = MCMC(kernel, num_warmup=100, num_samples=300, num_chains=2, chain_method="sequential", progress_bar=False)
    points = post.initial_points(jax.random.key(1), 2)
    mcmc.run(jax.random.key(2), x[:50], y=y, init_params=points)
    assert set(points) == {"a", "b"} and points["a"].shape == (2,)
    ((names, matrix),) = post.inverse_mass_matrix().items()
    draws = mcmc.get_samples()
    unconstrained = {"a": np.log(draws["a"]), "b": draws["b"]}
    covariance = np.cov([unconstrained[n] for n in names])
    np.testing.assert_allclose(np.sqrt(np.diag(matrix)), np.sqrt(np.diag(covariance)), rtol=0.25)
    assert post.initial_points(jax.random.key(1))["b"].shape == ()
