"""A model run forwards: its named values, their dimensions, and draws."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from adfpp.model.forward import Forward
from tests.model.common import GROUP, KEY, ROWS, SCALE, Array, X, Y, program, rows, sample


def model(x: Array, group: Array, n_groups: int, y: Array | None = None) -> None:
    """Every kind of named value, in plates and events with named axes."""
    w = sample("w", dist.Normal(0, 1).expand([2]).to_event(1), infer={"event_dims": ["feature"]})
    with numpyro.plate("groups", n_groups):
        z = sample("z", dist.Normal(0, 1))
    total = numpyro.deterministic("total", z.sum())
    with rows(x):
        mean = numpyro.deterministic("mean", x @ w + z[group] + 0.0 * total)
        numpyro.factor("weight", jnp.zeros(x.shape[0]))
        sample("y", dist.Normal(mean, SCALE), obs=y)


READ = program(model, X, GROUP, 3, y=Y)


def test_named_values_have_kinds_and_dimensions() -> None:
    """Plates give names to axes, and so does ``event_dims``."""
    forms = Forward(READ, (X, GROUP, 3), {"y": Y}).forms
    assert {name: form.kind for name, form in forms.items()} == {
        "w": "latent",
        "z": "latent",
        "total": "deterministic",
        "mean": "deterministic",
        "weight": "factor",
        "y": "observed",
    }
    assert {name: form.dims for name, form in forms.items()} == {
        "w": ("feature",),
        "z": ("groups",),
        "total": (),
        "mean": ("rows",),
        "weight": ("rows", None),
        "y": ("rows",),
    }
    assert [form.event_dim for form in forms.values()] == [1, 0, 0, 0, 1, 0]
    np.testing.assert_array_equal(forms["y"].value, Y)
    assert forms["mean"].value is None


def test_arguments_have_names() -> None:
    """Arrays and numbers."""
    arguments = Forward(READ, (X, GROUP, 3), {"y": Y}).arguments
    assert set(arguments) == {"x", "group", "n_groups", "y"}
    np.testing.assert_array_equal(arguments["n_groups"], 3)


def test_draws_follow_theta() -> None:
    """Deterministic values are functions of θ, and observations are drawn anew around them."""
    theta = np.random.default_rng(0).normal(size=(400, 5))
    drawn = Forward(READ, (X, GROUP, 3), {"y": Y}).draw(KEY, theta, ["z", "mean", "y"])
    mean = theta[:, :2] @ X.T + theta[:, 2:][:, GROUP]
    np.testing.assert_allclose(drawn["z"], theta[:, 2:], atol=1e-12)
    np.testing.assert_allclose(drawn["mean"], mean, atol=1e-12)
    noise = (drawn["y"] - mean) / SCALE
    assert abs(noise.mean()) < 5 / np.sqrt(400 * ROWS)
    assert abs(noise.std() - 1.0) < 5 / np.sqrt(2 * 400 * ROWS)
