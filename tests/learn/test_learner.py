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
