"""A model inside a pickle: by its import path, by value, or with a message that says what to do."""

import pickle
import sys
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adfpp
from adfpp.learn import learner as learner_module
from tests import models

KEY = jax.random.key(0)


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
