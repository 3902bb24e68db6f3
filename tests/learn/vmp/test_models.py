"""The conjugate models of models/."""

import importlib
from typing import Any

import jax
import numpy as np
import pytest

import adfpp
import models


def learned(name: str, rows: int = 200) -> tuple[Any, dict[str, np.ndarray]]:
    """The result of a run on simulated rows, and the truth behind them."""
    module = importlib.import_module(f"models.{name}")
    data, truth = module.simulate(jax.random.key(0), rows)
    return adfpp.VMP(module.model).run(jax.random.key(1), progress_bar=False, **data), truth


@pytest.mark.slow
@pytest.mark.parametrize("name", models.CONJUGATE)
def test_every_conjugate_model_converges_and_its_bound_never_falls(name: str) -> None:
    result, _ = learned(name)
    assert result.info.converged and 0.0 < result.info.residual < 1e-8
    assert np.diff(result.info.bound).min() > -1e-8


@pytest.mark.slow
@pytest.mark.parametrize(("name", "needed"), [("ppca", 2), ("factor_analysis", 2), ("bayesian_linear_ard", 2)])
def test_numbers_that_the_data_does_not_need_shrink(name: str, needed: int) -> None:
    alpha = np.sort(np.asarray(learned(name)[0].posterior.mean()["alpha"]))
    assert alpha[needed - 1] < 3.0 and alpha[needed] > 30.0


@pytest.mark.slow
def test_mixture_finds_its_components() -> None:
    result, truth = learned("mixture_of_gaussians")
    mean = result.posterior.mean()
    order = [int(np.argmin(np.sum((mean["mu"] - centre) ** 2, -1))) for centre in truth["mu"]]
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(mean["mu"][np.array(order)], truth["mu"], atol=0.5)
    counts = np.bincount(truth["which"], minlength=3)
    np.testing.assert_allclose(mean["weights"][np.array(order)], (counts + 1) / (counts.sum() + 3), atol=0.02)


@pytest.mark.slow
def test_each_component_of_local_factor_analysis_finds_its_factors() -> None:
    alpha = np.sort(np.asarray(learned("local_factor_analysis")[0].posterior.mean()["alpha"]), -1)
    assert (alpha[:, 0] < 10.0).all() and (alpha[:, 1] > 30.0).all()  # one factor each


@pytest.mark.slow
def test_topics_are_found() -> None:
    result, truth = learned("lda", 2000)
    found, exact = np.asarray(result.posterior.mean()["phi"]), truth["phi"]
    overlap = np.minimum(exact[:, None], found[None]).sum(-1)  # 1 for the same distribution
    assert sorted(overlap.argmax(1).tolist()) == [0, 1, 2] and overlap.max(1).min() > 0.8
