"""Log densities of a model with its data, against NumPyro's own and by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_likelihood, potential_energy
from scipy import stats

from adfpp.engine.tilt import moments_named
from adfpp.model import Joint, ModelError, read
from tests.models import logistic, rows


def noisy(x: Any, y: Any = None, noise: float = 0.5, m: Any = None) -> None:
    """A positive latent, a simplex, a factor and a masked observation."""
    s: Any = numpyro.sample("s", dist.HalfNormal(2.0))
    p: Any = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
    b = numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.factor("f", -0.1 * (b - x) ** 2)
        numpyro.sample("y", dist.Normal(s * x + p[0] + b, noise), obs=y)
        numpyro.sample("z", dist.Normal(b, 1.0).mask(m), obs=x)


@pytest.fixture(scope="module")
def joint() -> tuple[Joint, np.ndarray]:
    rng = np.random.default_rng(0)
    x, y, m = rng.normal(size=21), rng.normal(size=21), rng.random(21) > 0.5
    program = read(noisy, (x,), {"y": y, "m": m}, None, moments_named("auto"))
    return Joint(program, (x,), {"y": y, "m": m}), rng.normal(size=(6, program.size))


def test_log_joint_is_numpyros_potential(joint: tuple[Joint, np.ndarray]) -> None:
    """Transforms, factors and masks included."""
    j, theta = joint
    kwargs = dict(zip(j.program.layout.named("row"), j.rows, strict=True))
    x = kwargs.pop("x")
    for point, value in zip(theta, j.log_joint(theta), strict=True):
        params = {s.name: point[s.where].reshape(s.unconstrained_shape) for s in j.program.latents}
        assert value == pytest.approx(-float(potential_energy(noisy, (x,), kwargs, params)), rel=1e-10)


def test_log_likelihood_is_numpyros_row_by_row(joint: tuple[Joint, np.ndarray]) -> None:
    j, theta = joint
    kwargs = dict(zip(j.program.layout.named("row"), j.rows, strict=True))
    x = kwargs.pop("x")
    values = j.program.constrain(jnp.asarray(theta))
    expected = log_likelihood(noisy, values, x, **kwargs)
    found = j.log_likelihood(theta)
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-10)
    np.testing.assert_allclose(found["z"], np.where(kwargs["m"], expected["z"], 0.0), rtol=1e-10)
    np.testing.assert_allclose(found["f"], -0.1 * (np.asarray(values["b"])[:, None] - x) ** 2, rtol=1e-10)
    some = np.array([3, 0, 20])
    np.testing.assert_allclose(j.log_likelihood(theta, some)["y"], found["y"][:, some], rtol=1e-12)


@pytest.mark.slow
def test_the_priors_draws_and_density_belong_together(joint: tuple[Joint, np.ndarray]) -> None:
    j, _ = joint
    theta = j.draw_prior(jax.random.key(0), 4000)
    values = j.program.constrain(jnp.asarray(theta))
    assert float(np.mean(values["s"])) == pytest.approx(2.0 * np.sqrt(2 / np.pi), abs=0.06)
    logs = j.log_prior(theta[:5])
    np.testing.assert_allclose(logs["s"], dist.HalfNormal(2.0).log_prob(values["s"][:5]), rtol=1e-10)
    np.testing.assert_allclose(logs["p"], np.full(5, np.log(2.0)), rtol=1e-10)


def test_other_arguments_are_refused(joint: tuple[Joint, np.ndarray]) -> None:
    j, _ = joint
    with pytest.raises(ModelError, match="was read with"):
        Joint(j.program, (j.rows[0],), {})
    x, y, _ = rows()
    program = read(logistic, (x,), {"y": y}, None, moments_named("auto"))
    with pytest.raises(ModelError, match="shapes"):
        Joint(program, (x[:, :2],), {"y": y})


def level(y: Any = None, noise: float = 0.2) -> None:
    m = numpyro.sample("m", dist.Normal(0, 5))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(m, noise), obs=y)


def test_an_option_is_that_of_the_call() -> None:
    """Not that of the call that the model was read with."""
    y = np.array([0.3, -1.0, 2.0])
    program = read(level, (), {"y": y, "noise": 0.1}, None, moments_named("auto"))
    found = Joint(program, (), {"y": y, "noise": 2.0})
    expected = stats.norm.logpdf(y, 0.5, 2.0)
    np.testing.assert_allclose(found.log_likelihood(np.array([[0.5]]))["y"][0], expected, rtol=1e-9)
    total = stats.norm.logpdf(0.5, 0, 5) + expected.sum()
    np.testing.assert_allclose(found.log_joint(np.array([[0.5]])), total, rtol=1e-9)
    np.testing.assert_allclose(found.log_joint(np.array([[0.5]]), np.array([1])), total - expected[[0, 2]].sum())


def test_replicas_leave_out_what_was_not_observed(joint: tuple[Joint, np.ndarray]) -> None:
    j, theta = joint
    kwargs = dict(zip(j.program.layout.named("row"), j.rows, strict=True))
    for row in range(6):
        found = j.replicate(jax.random.key(row), jnp.asarray(theta), row)
        assert set(found) == ({"y", "z"} if kwargs["m"][row] else {"y"})  # and factors have nothing to draw
        drawn, value = found["y"]
        assert drawn.shape == (6, 1) and value == kwargs["y"][row]
