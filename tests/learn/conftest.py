"""Learners and results that several tests share: each is compiled once a worker."""

from typing import Any

import jax
import numpy as np
import pytest

import adfpp
from adfpp import ADF
from tests import models
from tests.learn.common import labels, logistic
from tests.products import beta, coins, ising, ising_learners, ising_results, pair  # noqa: F401


@pytest.fixture(scope="session")
def learner() -> tuple[ADF, Any, np.ndarray, np.ndarray]:
    """One compiled learner for the tests that need no other."""
    x, y = labels(1)
    adf = ADF(logistic)
    return adf, adf.init(jax.random.key(0), x, y=y), x, y


@pytest.fixture(scope="session")
def results() -> dict[str, Any]:
    """One run of each learner on the shared logistic model."""
    x, y, _ = models.rows()
    out = {}
    for name, made in (("adf", adfpp.ADF(models.logistic)), ("ep", adfpp.EP(models.logistic, tol=0.1))):
        out[name] = made, made.run(jax.random.key(0), x, y=y, progress_bar=False)
    return out
