"""The cache of programs, of limited size."""

import gc
import weakref
from typing import Any

import jax
import numpyro
import numpyro.distributions as dist
import pytest

import adfpp
from adfpp.learn import programs, session
from tests import models

KEY = jax.random.key(0)


@pytest.mark.slow
@pytest.mark.parametrize("learner", [adfpp.ADF, adfpp.EP])
def test_a_forgotten_program_frees_what_was_compiled_for_it(monkeypatch: pytest.MonkeyPatch, learner: Any) -> None:
    """A process that makes many models would run out of memory maps, and Linux ends it."""
    monkeypatch.setattr(session, "_PROGRAMS", programs.Programs())
    monkeypatch.setattr(programs, "_MOST_PROGRAMS", 1)
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
