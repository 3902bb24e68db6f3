"""Learners, states, posteriors and results as Python objects: pickles, copies, threads, donation, foreign states."""

import copy
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adfpp
from adfpp.learn import adf as adf_module
from adfpp.learn import learner as learner_module
from adfpp.learn import session as session_module
from tests import models

ROOT = Path(__file__).parents[2]
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """One run of each learner on the shared logistic model."""
    x, y, _ = models.rows()
    out = {}
    for name, made in (("adf", adfpp.ADF(models.logistic)), ("ep", adfpp.EP(models.logistic, tol=0.1))):
        out[name] = made, made.run(KEY, x, y=y, progress_bar=False)
    return out


@pytest.mark.parametrize("name", ["adf", "ep"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))], ids=["deepcopy", "pickle"])
def test_learners_and_results_can_be_copied(results: dict[str, Any], name: str, copied: Any) -> None:
    """A copy goes on to the same bits, and a copied result still knows its run."""
    x, y, _ = models.rows()
    made, result = results[name]
    other, again = copied(made), copied(result)
    assert type(other) is type(made) and other.model is made.model and other is not made
    np.testing.assert_array_equal(again.state.belief.mean, result.state.belief.mean)
    np.testing.assert_array_equal(jax.random.key_data(again.state.rng_key), jax.random.key_data(result.state.rng_key))
    fresh = other.run(KEY, x, y=y, progress_bar=False)
    np.testing.assert_array_equal(fresh.state.belief.mean, result.state.belief.mean)
    assert other.get_posterior(again).summary().equals(result.posterior.summary())
    assert again.posterior.summary().equals(result.posterior.summary())
    np.testing.assert_array_equal(again.again(x, y=y).state.belief.mean, result.state.belief.mean)


def test_a_pickle_is_read_by_another_process(results: dict[str, Any], tmp_path: Path) -> None:
    """A posterior and a learner with its state, where nothing has been read yet."""
    made, result = results["adf"]
    (tmp_path / "all.pkl").write_bytes(pickle.dumps((made, result.state, result.posterior)))
    code = (
        "import jax; jax.config.update('jax_enable_x64', True)\\n"
        "import pickle, sys, numpy as np\\n"
        "from tests import models\\n"
        "learner, state, posterior = pickle.load(open(sys.argv[1], 'rb'))\\n"
        "x, y, _ = models.rows()\\n"
        "assert learner.get_posterior(state).mean()['w'].shape == (3,)\\n"
        "state, info = learner.update(state, x[:1], y=y[:1])\\n"
        "print(float(posterior.mean()['w'][0]), int(state.rows), learner.get_posterior(state).sd()['w'].shape)"
    ).replace("\\n", "\n")
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(tmp_path / "all.pkl")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    mean, rows, shape = told.stdout.split(maxsplit=2)
    assert float(mean) == float(result.posterior.mean()["w"][0]) and int(rows) == models.ROWS + 1
    assert shape.strip() == "(3,)"


def test_a_model_without_an_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local function is pickled by value where cloudpickle is installed; otherwise the message says what to do."""
    noise = 0.5

    def local(x: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(w * x, noise), obs=y)

    made = adfpp.ADF(local)
    x, y = np.ones(4), np.zeros(4)
    expected = made.run(KEY, x, y=y, progress_bar=False).state.belief.mean
    other = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(other.run(KEY, x, y=y, progress_bar=False).state.belief.mean, expected)
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(pickle.PicklingError, match=r"top level of a module, or install cloudpickle"):
        pickle.dumps(made)
    assert learner_module.ModelReference(models.logistic).__reduce__()[1] == (models.logistic,)


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
    functions, shapes = program.compiled.cache_info().currsize, absorb._cache_size()
    again, _ = second.update(second.init(KEY, x, y=y), x, y=y)
    assert (program.compiled.cache_info().currsize, absorb._cache_size()) == (functions, shapes)
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


@pytest.mark.parametrize("learner", [adfpp.ADF, adfpp.EP])
def test_a_forgotten_program_frees_what_was_compiled_for_it(monkeypatch: pytest.MonkeyPatch, learner: Any) -> None:
    """A process that makes many models would run out of memory maps, and Linux ends it."""
    monkeypatch.setattr(session_module, "_PROGRAMS", session_module._Programs())
    monkeypatch.setattr(session_module, "_MOST_PROGRAMS", 1)
    x, y, _ = models.rows()

    def read(prior_scale: float) -> weakref.ref:
        def model(x: Any, y: Any = None) -> None:
            w = numpyro.sample("w", dist.Normal(0, prior_scale).expand([models.SIZE]).to_event(1))
            with numpyro.plate("rows", x.shape[0]):
                numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)

        made = learner(model)
        made.run(KEY, x, y=y, progress_bar=False)
        return weakref.ref(made.session.latest)

    first = read(1.0)
    assert first() is not None
    second = read(2.0)
    gc.collect()
    assert first() is None and second() is not None


def test_a_changed_global_makes_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are shared by model; a model whose surroundings have changed is another model."""
    x, y = np.ones(2), np.zeros(2)
    before = adfpp.ADF(scaled).init(KEY, x, y=y)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    after = adfpp.ADF(scaled).init(KEY, x, y=y)
    assert float(before.belief.scale[0, 0]) == 1.0 and float(after.belief.scale[0, 0]) == 3.0


def test_a_donated_state_does_not_poison_the_learner() -> None:
    """``init`` hands out buffers of its own: the next call does not see that the first state was given away."""
    x, y, _ = models.rows()
    made = adfpp.ADF(models.logistic)
    state = made.init(KEY, x, y=y)
    expected = np.array(state.belief.mean)
    step = jax.jit(lambda s, a, b: made.update(s, a, y=b)[0], donate_argnums=0)
    step(state, x, y)
    assert state.belief.mean.is_deleted()
    again = made.init(KEY, x, y=y)
    np.testing.assert_array_equal(again.belief.mean, expected)
    np.testing.assert_array_equal(jax.random.key_data(KEY), jax.random.key_data(jax.random.key(0)))


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


def test_states_are_pytrees_of_arrays(results: dict[str, Any]) -> None:
    """The fingerprint is structure, not data: a state can be stacked, mapped and compared."""
    _, result = results["adf"]
    state = result.state
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))
    stacked = jax.tree.map(lambda *a: jnp.stack(a), state, state)
    assert stacked.fingerprint == state.fingerprint and stacked.belief.mean.shape == (2, models.SIZE)
