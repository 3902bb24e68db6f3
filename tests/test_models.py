"""The models: each simulates data that it accepts, fits and predicts."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import MCMC, NUTS, Predictive
from numpyro.infer.util import log_density
from scipy.stats import chi2

import models

NUM_ROWS = 2000
ALL = (*models.NAMES, *models.HIERARCHIES)
MODELS = {name: import_module(f"models.{name}") for name in ALL}
SMOOTH = [name for name in ALL if name != "rosenblatt"]  # a step has no gradient to test
FEW = ("poisson", "student_t", "mixture", "hierarchy", "random_walk", "unknown_noise")  # a Hessian takes its time

every_model = pytest.mark.parametrize("name", ALL)


@cache
def simulation(name: str) -> models.Simulation:
    """The simulation that most tests look at."""
    return MODELS[name].simulate(jax.random.key(0), NUM_ROWS)


def without_y(data: dict[str, Any]) -> dict[str, Any]:
    """The data to predict y from."""
    return {key: value for key, value in data.items() if key != "y"}


def arrays(data: dict[str, Any], start: int = 0, stop: int = NUM_ROWS) -> dict[str, np.ndarray]:
    """The arrays among the data, from row start to row stop."""
    return {key: value[start:stop] for key, value in data.items() if isinstance(value, np.ndarray)}


def statements(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """NumPyro's record of the model's latents and observations, with the latents at the truth."""
    truth = jax.tree.map(jnp.asarray, simulation(name).truth)
    model = substitute(MODELS[name].model, data=truth)
    found = trace(seed(model, jax.random.key(1))).get_trace(**data)
    return {key: message for key, message in found.items() if message["type"] == "sample"}


@cache
def row_log_density(name: str) -> Callable[[dict[str, Any]], jax.Array]:
    """The compiled log density of each row at the truth, a function of the arrays among the data."""

    @jax.jit
    def log_density_at_truth(arrays: dict[str, Any]) -> jax.Array:
        y = statements(name, simulation(name).data | arrays)["y"]
        return y["fn"].log_prob(y["value"])

    return log_density_at_truth


@pytest.mark.slow
@every_model
def test_simulate_is_a_function_of_the_key(name: str) -> None:
    """The same key gives the same data and truth; another gives others."""
    again, other = (MODELS[name].simulate(jax.random.key(k), NUM_ROWS) for k in (0, 1))
    jax.tree.map(np.testing.assert_array_equal, simulation(name), again)
    assert not np.array_equal(again.data["y"], other.data["y"])


@every_model
def test_simulation_fits_the_model(name: str) -> None:
    """Data have a row each, the truth covers every latent, and y lies in the support."""
    data, truth = simulation(name)
    for key, value in data.items():
        if isinstance(value, np.ndarray):
            assert value.shape[0] == NUM_ROWS, key
        else:
            assert type(value) in (int, float), key
    found = statements(name, data)
    y = found.pop("y")
    assert y["is_observed"]
    assert y["fn"].batch_shape == (NUM_ROWS,)
    assert np.all(y["fn"].support(data["y"]))
    assert {key: message["fn"].shape() for key, message in found.items()} == {
        key: value.shape for key, value in truth.items()
    }


@every_model
def test_rows_add_up(name: str) -> None:
    """At the truth every row has a finite log density, the same alone as among the others."""
    data = simulation(name).data
    together = np.asarray(row_log_density(name)(arrays(data)))
    assert np.all(np.isfinite(together))
    for row in range(3):
        alone = row_log_density(name)(arrays(data, row, row + 1))
        np.testing.assert_allclose(alone, together[[row]], rtol=1e-4, atol=1e-6)


@every_model
def test_simulated_rows_look_like_the_models_own(name: str) -> None:
    """At the truth, y from `simulate` and from the model agree in mean log density, to 4 standard errors."""
    data = simulation(name).data
    y = statements(name, without_y(data))["y"]["value"]
    simulated = np.asarray(row_log_density(name)(arrays(data)))
    drawn = np.asarray(row_log_density(name)(arrays(data) | {"y": y}))
    error = np.sqrt((simulated.var() + drawn.var()) / NUM_ROWS)
    assert abs(simulated.mean() - drawn.mean()) <= 4 * error


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in SMOOTH]
)
def test_truth_is_plausible(name: str) -> None:
    """The posterior's score test takes the truth and rejects a point nearby.

    With g and H the gradient and minus the Hessian of the log joint density, gᵀ H⁻¹ g is at the truth about
    chi-squared, with as many degrees of freedom as there are latent numbers.
    """
    data, truth = simulation(name)
    flat, unravel = ravel_pytree(truth)

    @jax.jit
    def statistic(flat: jax.Array) -> jax.Array:
        def log_joint(flat: jax.Array) -> jax.Array | float:
            return log_density(MODELS[name].model, (), data, unravel(flat))[0]

        gradient = jax.grad(log_joint)(flat)
        return -gradient @ jnp.linalg.solve(jax.hessian(log_joint)(flat), gradient)

    low, high = chi2.ppf([1e-4, 1 - 1e-4], flat.size)
    assert low < statistic(flat) < high
    away = jnp.where(jnp.arange(flat.size) % 2 == 0, 0.3, -0.3)
    assert statistic(flat + away) > high


@every_model
def test_prior_predictive(name: str) -> None:
    """Without y the model draws its latents and y, in their shapes and supports."""
    data, truth = simulation(name)
    draws = Predictive(MODELS[name].model, num_samples=1)(jax.random.key(2), **without_y(data))
    shapes = {key: (1, *value.shape) for key, value in {**truth, "y": data["y"]}.items()}
    assert {key: value.shape for key, value in draws.items()} == shapes
    for key, message in statements(name, data).items():
        assert np.all(message["fn"].support(draws[key])), key


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "constants"),
    [
        ("rosenblatt", {"beta": 2.0}),
        ("hierarchy", {}),
        ("item_response", {}),
    ],
)
def test_nuts_takes_the_model(name: str, constants: dict[str, float]) -> None:
    """A short run moves and stays finite."""
    data, truth = simulation(name)
    mcmc = MCMC(NUTS(MODELS[name].model), num_warmup=10, num_samples=10, progress_bar=False)
    mcmc.run(jax.random.key(3), **(data | arrays(data, 0, 100) | constants))
    draws = mcmc.get_samples()
    assert draws.keys() == truth.keys()
    for value in draws.values():
        assert np.all(np.isfinite(value))
        assert np.all(np.std(value, axis=0) > 0)


def test_the_two_forms_of_eight_schools_are_one_model() -> None:
    """At the same effects the log density of the centred form is that of the other, less log tau for each school."""
    data, truth = simulation("eight_schools")
    centred = log_density(MODELS["eight_schools"].model, (), data, truth)[0]
    other = simulation("eight_schools_noncentred")
    noncentred = log_density(MODELS["eight_schools_noncentred"].model, (), other.data, other.truth)[0]
    np.testing.assert_allclose(centred, noncentred - 8 * np.log(truth["tau"]), rtol=1e-10)


def test_groups_of_varying_intercepts_are_very_unequal() -> None:
    """Some of the many groups have hundreds of rows, some one or two."""
    data = simulation("varying_intercepts").data
    sizes = np.bincount(data["group"], minlength=data["n_groups"])
    assert len(sizes) >= 80
    assert sizes.max() > 300
    assert sizes.min() < 3
