"""Calls are bound to programs: shared where they may be, read anew where they must be, and foreign states refused."""

import threading
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adfpp
from adfpp import ADF
from adfpp.learn import adf as adf_module
from tests import models
from tests.learn.common import TRACES, equal, labels, logistic

KEY = jax.random.key(0)


def test_call_forms_share_one_program(learner: Any) -> None:
    """Positional or by keyword, NumPy or JAX: the same result and nothing read again."""
    adf, start, x, y = learner
    reference, _ = adf.update(start, x[:8], y[:8])  # a new form adds the program to the cache, if it is no longer there
    before = TRACES["count"]
    for state in (
        adf.update(start, x[:8], y=y[:8])[0],
        adf.update(start, y=y[:8], x=x[:8])[0],
        adf.update(start, jnp.asarray(x[:8]), y=jnp.asarray(y[:8]))[0],
    ):
        assert equal(state, reference)
    assert TRACES["count"] == before


def test_a_state_of_another_model_is_refused() -> None:
    """Neither another number of columns nor another support may go on with a state; explaining one is harmless."""
    x, y = labels(13, 16)
    adf = ADF(logistic)
    state, _ = adf.update(adf.init(jax.random.key(0), x, y=y), x, y=y)
    adf.explain(x[:, :2], y=y)
    assert adf.get_posterior(state).mean()["w"].shape == (3,)
    for call in (adf.update, lambda s, *a, **k: adf.run(jax.random.key(0), *a, state=s, progress_bar=False, **k)):
        with pytest.raises(adfpp.ModelError, match="belongs to another"):
            call(state, x[:, :2], y=y)

    def bounded(x: Any, upper: float, y: Any = None) -> None:
        p = numpyro.sample("p", dist.Uniform(0, upper))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(p * x, 1.0), obs=y)

    other = ADF(bounded)
    begun = other.init(jax.random.key(0), x[:, 0], 1.0, y=x[:, 1])
    with pytest.raises(adfpp.ModelError, match="bounds"):
        other.update(begun, x[:, 0], 10.0, y=x[:, 1])
    np.testing.assert_allclose(other.get_posterior(begun).mean()["p"], 0.5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "module", "visit"), [("ADF", "adf", "_absorb"), ("EP", "ep.sweeps", "visit_in_order")]
)
def test_the_last_chunk_of_a_run_needs_no_program_of_its_own(
    name: str, module: str, visit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """19 rows in chunks of 8 are visited by one program, and the result is that of one chunk."""
    x, y, _ = models.rows(2, 19)
    runs, compiled = [], None

    def model(x: Any, y: Any = None) -> None:
        models.linear(x, y)

    for chunk in (32, 8):
        monkeypatch.setattr(f"adfpp.learn.{'adf' if name == 'ADF' else 'ep.ep'}.suitable_chunk", lambda *_, c=chunk: c)
        learner = getattr(adfpp, name)(model)
        runs.append(learner.run(KEY, x, y=y, progress_bar=False))
        program = learner.session.latest
        assert program is not None
        function = getattr(import_module(f"adfpp.learn.{module}"), visit)
        if name == "ADF":
            compiled = program.compiled(function, learner.motion)
        else:
            compiled = program.compiled(function, effort="light")
    assert compiled is not None and compiled.outermost._cache_size() == 2  # for 32 rows and for 8
    np.testing.assert_allclose(runs[1].state.belief.mean, runs[0].state.belief.mean, rtol=1e-9)


def test_two_learners_of_one_model_share_what_is_read_and_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second learner reads nothing and compiles nothing."""
    x, y, _ = models.rows(2, 16)
    first = adfpp.ADF(models.linear)
    state, _ = first.update(first.init(KEY, x, y=y), x, y=y)
    monkeypatch.setattr("adfpp.learn.session.read", lambda *a, **k: pytest.fail("the model was read again"))
    second = adfpp.ADF(models.linear)
    program = first.session.latest
    assert program is not None
    absorb = program.compiled(getattr(adf_module, "_absorb"), first.motion)  # noqa: B009
    functions, shapes = program.compiled.cache_info().currsize, absorb.outermost._cache_size()
    again, _ = second.update(second.init(KEY, x, y=y), x, y=y)
    assert (program.compiled.cache_info().currsize, absorb.outermost._cache_size()) == (functions, shapes)
    np.testing.assert_array_equal(again.belief.mean, state.belief.mean)
    assert second.session.latest is first.session.latest
    monkeypatch.undo()
    # a learner of another family has another program
    third = adfpp.ADF(models.linear, family="diagonal")
    third.init(KEY, x, y=y)
    assert third.session.latest is not first.session.latest


SCALE = 1.0


def scaled(x: Any, y: Any = None) -> None:
    """A model that reads a global."""
    w = numpyro.sample("w", dist.Normal(0, SCALE))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(w * x, 1.0), obs=y)


def test_a_changed_global_makes_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are shared by model; a model whose surroundings have changed is another model."""
    x, y = np.ones(2), np.zeros(2)
    before = adfpp.ADF(scaled).init(KEY, x, y=y)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    after = adfpp.ADF(scaled).init(KEY, x, y=y)
    assert float(before.belief.scale[0, 0]) == 1.0 and float(after.belief.scale[0, 0]) == 3.0


def test_eight_threads_from_cold() -> None:
    """All threads read, compile and learn at once; each gets what one thread gets alone."""

    def model(x: Any, y: Any = None) -> None:
        w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        tau = numpyro.sample("tau", dist.LogNormal(0, 1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ w, tau), obs=y)

    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(8, 2)), rng.normal(size=8)
    found: list[Any] = [None] * 8
    barrier = threading.Barrier(8)

    def work(i: int) -> None:
        try:
            barrier.wait()
            made = shared if i % 2 else adfpp.ADF(model)
            state, info = made.update(made.init(KEY, x, y=y), x, y=y)
            found[i] = np.asarray(state.belief.mean), np.asarray(info.log_z), made.get_posterior(state).mean()["w"]
        except BaseException as error:
            found[i] = error

    shared = adfpp.ADF(model)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = adfpp.ADF(model)
    state, info = alone.update(alone.init(KEY, x, y=y), x, y=y)
    for one in found:
        assert isinstance(one, tuple), one
        np.testing.assert_array_equal(one[0], state.belief.mean)
        np.testing.assert_array_equal(one[1], info.log_z)


def other_link(x: Any, y: Any = None) -> None:
    """The same latents as ``models.logistic``, with another likelihood."""
    models.probit(x, y)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (adfpp.ADF(other_link), "its model is logistic, here it is other_link"),
        (adfpp.ADF(models.logistic, family="diagonal"), "its family is full, here it is diagonal"),
        (adfpp.ADF(models.unknown_noise), "it lacks the latent 'sigma'"),
    ],
    ids=["model", "family", "latents"],
)
def test_a_foreign_state_is_refused(results: dict[str, Any], other: Any, words: str) -> None:
    """The message names what differs and how to go on."""
    x, y, _ = models.rows()
    _, result = results["adf"]
    other.init(KEY, x, y=y)
    for call in (
        lambda: other.update(result.state, x, y=y),
        lambda: other.get_posterior(result.state),
        lambda: other.run(KEY, x, y=y, state=result.state, progress_bar=False),
        lambda: other.get_local(result.state, x, y=y),
    ):
        with pytest.raises(adfpp.ModelError, match=words):
            call()
    with pytest.raises(adfpp.ModelError, match=r"prior=learner.get_posterior\(state\)"):
        jax.jit(lambda s: other.update(s, x, y=y)[0])(result.state)


def test_ep_refuses_the_sites_of_another_model(results: dict[str, Any]) -> None:
    """Sites have the same shapes in both models, and belong to one of them."""
    x, y, _ = models.rows()
    other, (_, result) = adfpp.EP(other_link), results["ep"]
    with pytest.raises(adfpp.ModelError, match="its model is logistic, here it is other_link"):
        other.run(KEY, x, y=y, state=result, progress_bar=False)
    with pytest.raises(adfpp.ModelError, match="its model is logistic, here it is other_link"):
        other.get_local(result, x, y=y)


def test_a_state_of_another_precision_is_refused(results: dict[str, Any]) -> None:
    """A float64 state does not go on in float32 unnoticed."""
    x, y, _ = models.rows()
    made, result = results["adf"]
    with jax.enable_x64(False), pytest.raises(adfpp.ModelError, match="its dtype is float64, here it is float32"):
        made.update(result.state, x, y=y)


def test_shared_arrays_need_values_in_init() -> None:
    """The prior is computed from them with NumPy."""

    def model(x: Any, scale: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0, scale))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(w * x, 1.0), obs=y)

    adf = adfpp.ADF(model)
    x, scales = np.array([1.0, 2.0, 3.0]), jnp.array([0.5, 1.0])
    with pytest.raises(adfpp.ModelError, match="'scale' is traced.*init outside.*rows="):
        jax.vmap(lambda s: adf.init(KEY, x, s, y=x).belief.mean)(scales)


def test_a_result_of_a_higher_precision_is_refused(results: dict[str, Any]) -> None:
    """With the switch that was turned, wherever densities or draws are computed from it; float32 goes on."""
    x, y, _ = models.rows()
    made, result = results["adf"]
    with jax.enable_x64(False):
        with pytest.raises(adfpp.ModelError, match="here it is float32 .jax_enable_x64 has changed"):
            made.update(result.state, x, y=y)
        for call in (
            lambda: result.posterior.sample(KEY),
            lambda: result.posterior.log_prob({"w": np.zeros(models.SIZE)}),
            lambda: result.posterior.reweighted(KEY, x, y=y),
            lambda: adfpp.check(made, result, x, y=y, progress_bar=False),
            lambda: adfpp.to_arviz(result, x, y=y),
        ):
            with pytest.raises(adfpp.ModelError, match="computed in float64.*jax_enable_x64 has been switched off"):
                call()
        low = adfpp.ADF(models.logistic).run(KEY, x, y=y, progress_bar=False)
    assert low.posterior.sample(KEY)["w"].shape == (models.SIZE,)
    with pytest.raises(adfpp.ModelError, match="its dtype is float32, here it is float64"):
        made.update(low.state, x, y=y)


@pytest.mark.slow
def test_a_first_call_may_be_traced() -> None:
    """The model is read and its prior is projected while a user's function is traced; nothing traced is kept."""

    def choices(x: Any, y: Any) -> None:
        prior: Any = dist.LogNormal(0, 1).expand([2, 3])
        w: Any = numpyro.sample("w", prior.to_event(2))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.CategoricalLogits(x @ w), obs=y)

    def learned(adf: adfpp.ADF) -> Any:
        return lambda x, y: adf.update(adf.init(jax.random.key(0), x, y), x, y)[0].belief.mean

    x, y = np.array([[0.5, -1.0], [0.2, 0.3]]), np.array([2, 0])
    adf = adfpp.ADF(choices)
    inside = jax.jit(learned(adf))(x, y)
    np.testing.assert_allclose(inside, learned(adf)(x, y), rtol=1e-10)
