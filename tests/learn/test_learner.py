"""Learners, states and results as Python objects: copies, pickles, donation, pytrees."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import adfpp
from tests import models

KEY = jax.random.key(0)


ROOT = Path(__file__).parents[2]


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


def test_states_are_pytrees_of_arrays(results: dict[str, Any]) -> None:
    """The fingerprint is structure, not data: a state can be stacked, mapped and compared."""
    _, result = results["adf"]
    state = result.state
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))
    stacked = jax.tree.map(lambda *a: jnp.stack(a), state, state)
    assert stacked.fingerprint == state.fingerprint and stacked.belief.mean.shape == (2, models.SIZE)


def test_a_result_is_taken_where_a_state_is(results: dict[str, Any]) -> None:
    """By ADF and EP, also inside jit; ``jax.tree.map`` makes results without a record of their run."""
    x, y, _ = models.rows()
    adf, result = results["adf"]
    expected, _ = adf.update(result.state, x, y=y)
    bare = jax.tree.map(lambda a: a, result)
    for state in (result, bare):
        again = [
            adf.update(state, x, y=y)[0],
            jax.jit(lambda s: adf.update(s, x, y=y)[0])(state),
            adf.run(KEY, x, y=y, state=state, progress_bar=False).state,
        ]
        for one in again:
            np.testing.assert_allclose(one.belief.mean, expected.belief.mean, rtol=1e-12)
            assert int(one.rows) == 2 * models.ROWS
    ep, of_ep = results["ep"]
    for state in (result, of_ep, jax.tree.map(lambda a: a, of_ep)):
        further = ep.run(KEY, x, y=y, state=state, progress_bar=False)
        np.testing.assert_allclose(further.state.belief.mean, of_ep.state.belief.mean, atol=0.01)


def test_what_is_no_state_is_refused(results: dict[str, Any]) -> None:
    """What ``update`` returns, a posterior, and a state of the other learner."""
    x, y, _ = models.rows()
    adf, result = results["adf"]
    ep, of_ep = results["ep"]
    for state, name in (((result.state, result.info), "tuple"), (result.posterior, "Posterior"), (of_ep, "EPState")):
        for call in (
            lambda s: adf.update(s, x, y=y),
            lambda s: adf.run(KEY, x, y=y, state=s, progress_bar=False),
            lambda s: adf.get_local(s, x, y=y),
        ):
            with pytest.raises(TypeError, match=f"state must be ADFState.*it is a {name}.*prior="):
                call(state)
    with pytest.raises(TypeError, match="it is a Posterior"):
        ep.run(KEY, x, y=y, state=result.posterior, progress_bar=False)
    with pytest.raises(TypeError, match="state must be EPState.*it is a ADFState"):
        ep.get_local(result, x, y=y)


def test_loops_in_python_are_refused_inside_transformations(results: dict[str, Any]) -> None:
    """EP as a whole, and ``run`` of ADF, whose other methods may be transformed."""
    x, y, _ = models.rows()
    (adf, _), (ep, _) = results["adf"], results["ep"]
    many = jnp.stack([x, x])
    keys = jax.random.split(KEY, 2)
    for call in (lambda a: ep.init(KEY, a, y=y), lambda a: ep.run(KEY, a, y=y, progress_bar=False)):
        with pytest.raises(TypeError, match="jax.jit, vmap.*Python loop.*init and update of an ADF"):
            jax.vmap(call)(many)
    for call in (
        lambda: jax.vmap(lambda a: adf.run(KEY, a, y=y, progress_bar=False).state)(many),
        lambda: jax.vmap(lambda k: adf.run(k, x, y=y, progress_bar=False).state)(keys),
        lambda: jax.jit(lambda k: ep.run(k, x, y=y, progress_bar=False).state)(KEY),
    ):
        with pytest.raises(TypeError, match="cannot run inside jax.jit, vmap"):
            call()
    states = jax.vmap(lambda k, a: adf.update(adf.init(k, a, y=y), a, y=y)[0])(keys, many)
    expected, _ = adf.update(adf.init(KEY, x, y=y), x, y=y)
    np.testing.assert_allclose(states.belief.mean, np.stack([expected.belief.mean] * 2), rtol=1e-10)
