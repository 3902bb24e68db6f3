"""Priors as factors: one for each element, or for each summand."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats

from adfpp.model import Program
from tests import models
from tests.model.common import Array, Y, program, rows, sample

DATA = models.rows()


def log_prior(read_as: Program, name: str, theta: np.ndarray, shared: list[np.ndarray]) -> float:
    """Log prior of one latent in unconstrained space, from its factors."""
    groups = read_as.prior_factors[name]

    @jax.jit
    def total(theta: jax.Array, inputs: list[jax.Array]) -> jax.Array:
        out = jnp.zeros(())
        for group in groups:
            assert group.factors.tail is not None
            _, field = group.factors.matrices(theta, *inputs)
            log_factor = group.factors.tail(*inputs).log_factor
            out = out + sum(log_factor(field[e], e) for e in range(group.factors.count))
        return out

    return float(total(jnp.asarray(theta), read_as.prior_inputs(shared)))


def test_a_hierarchy_has_a_factor_for_each_group() -> None:
    """With the density of the prior, which couples a group to its mean and scale."""
    read_as = program(models.groups, DATA.x, DATA.group, DATA.y)
    groups = read_as.prior_factors
    assert list(groups) == ["mu", "tau", "a"]
    (a,) = groups["a"]
    assert (a.key, a.latent.name, a.factors.count) == ("a", "a", models.GROUPS)
    theta = np.array([0.3, -0.2, *np.linspace(-1.0, 1.0, models.GROUPS)])
    expected = stats.norm.logpdf(theta[2:], 0.3, np.exp(-0.2)).sum()
    np.testing.assert_allclose(log_prior(read_as, "a", theta, []), expected, rtol=1e-10)
    np.testing.assert_allclose(log_prior(read_as, "tau", theta, []), stats.norm.logpdf(-0.2, -0.5, 0.5), rtol=1e-10)


class Walk(dist.Distribution):
    """A random walk of four steps, whose log-density is written as a sum."""

    arg_constraints = {"scale": dist.constraints.positive}
    support = dist.constraints.real_vector  # pyright: ignore[reportAssignmentType]

    def __init__(self, scale: Array, *, validate_args: bool | None = None) -> None:
        self.scale = scale
        super().__init__((), (4,), validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        first = dist.Normal(0.0, self.scale).log_prob(value[..., 0])
        return first + dist.Normal(value[..., :-1], self.scale).log_prob(value[..., 1:]).sum(-1)


def walk(y: Array, width: Array) -> None:
    """A random walk whose scale is learned."""
    scale = sample("scale", dist.LogNormal(0.0, width))
    steps = sample("steps", Walk(scale))
    with rows(y):
        sample("y", dist.Normal(steps.sum(), 1.0), obs=y)


def test_a_sum_is_cut_into_its_summands() -> None:
    """A factor a step, which reads the scale and one difference, under keys of their own."""
    read_as = program(walk, Y, np.asarray(0.5))
    groups = read_as.prior_factors["steps"]
    assert [group.key for group in groups] == ["steps", *(f"steps#{i}" for i in range(1, len(groups)))]
    assert max(group.factors.field_size for group in groups) == 2
    theta = np.array([-0.3, 0.5, 0.1, 0.4, 1.0])
    steps = np.diff(theta[1:], prepend=0.0)
    expected = stats.norm.logpdf(steps, 0.0, np.exp(-0.3)).sum()
    np.testing.assert_allclose(log_prior(read_as, "steps", theta, [np.asarray(0.5)]), expected, rtol=1e-10)


def test_values_of_shared_arrays_are_inputs() -> None:
    """The factors of one program serve every value: only shapes are needed to build them."""
    read_as = program(walk, Y, np.asarray(0.5))
    theta = np.array([-0.3, 0.5, 0.1, 0.4, 1.0])
    for width in (0.5, 2.0):
        got = log_prior(read_as, "scale", theta, [np.asarray(width)])
        np.testing.assert_allclose(got, stats.norm.logpdf(-0.3, 0.0, width), rtol=1e-10)


def test_a_prior_that_is_constant_has_no_factor() -> None:
    """A discrete latent with even odds says nothing of any value."""

    def model(y: Array) -> None:
        c = sample("c", dist.Bernoulli(logits=0.0))
        with numpyro.plate("rows", y.shape[0]):
            sample("y", dist.Normal(c, 1.0), obs=y)

    read_as = program(model, Y)
    logs = jax.jit(read_as.prior().logs)(jnp.zeros(1), *read_as.prior_inputs([]))
    np.testing.assert_allclose(logs[0], np.log(0.5))
    assert all(group.latent.name == "c" for group in read_as.prior_factors["c"])
