"""Sizes that a model reads out of its data: those of the first data stay, whatever rows come later."""

import pickle
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.reparam import LocScaleReparam

import adfpp
from adfpp.model import Joint
from tests.model.common import GROUP, KEY, ROWS, SCALE, Array, Y, program, refusal, rows, sample, says

COUNTS: dict[str, Callable[[Array], int]] = {
    "np.unique": lambda g: len(np.unique(g)),
    "np.max": lambda g: np.max(g) + 1,
    "int(np.max)": lambda g: int(np.max(g)) + 1,
    "max": lambda g: g.max() + 1,
    "bincount": lambda g: len(np.bincount(g)),
    "int(jnp.max)": lambda g: int(jnp.max(g)) + 1,
    "difference": lambda g: int(jax.nn.relu(jnp.max(g) - jnp.min(g))) + 1,
}
FIVE = np.array([0, 1, 2, 3, 4, 0])


def means(count: Callable[[Array], int]) -> Callable[..., None]:
    """A mean for each group; the posterior is known."""

    def model(group: Array, y: Array | None = None) -> None:
        with numpyro.plate("groups", count(group)):
            z = sample("z", dist.Normal(0, 1))
        with rows(group):
            sample("y", dist.Normal(z[group], SCALE), obs=y)

    return model


def counted(group: Array, y: Array | None = None) -> None:
    """The same at the top level of a module, so that it has an import path."""
    means(COUNTS["np.unique"])(group, y=y)


def exact(group: np.ndarray, y: np.ndarray, groups: int) -> np.ndarray:
    """Posterior means of the groups."""
    counts = np.bincount(group, minlength=groups)
    return np.bincount(group, y, groups) / (counts + SCALE**2)


@pytest.mark.parametrize("how", COUNTS)
def test_a_number_of_groups_is_read_out_of_all_data(how: str) -> None:
    """Batches that lack some groups are learned with the same number of groups."""
    adf = adfpp.ADF(means(COUNTS[how]))
    state = adf.init(KEY, GROUP, y=Y)
    state, _ = adf.update(state, GROUP[:1], y=Y[:1])
    state, info = adf.update(state, GROUP[1:], y=Y[1:])
    assert np.all(np.asarray(info.status) == adfpp.Status.OK)
    np.testing.assert_allclose(state.belief.mean, exact(GROUP, Y, 3), atol=1e-10)


def test_a_group_that_the_first_data_lack_is_refused() -> None:
    """And so it is not taken for the last group."""
    adf = adfpp.ADF(counted)
    before = adf.init(KEY, GROUP, y=Y)
    state, info = adf.update(before, np.array([3, 0]), y=Y[:2])
    assert np.asarray(info.status).tolist() == [adfpp.Status.OUT_OF_SUPPORT, adfpp.Status.OK]
    np.testing.assert_allclose(state.belief.mean, exact(np.array([0]), Y[1:2], 3), atol=1e-10)


def test_data_with_another_number_of_groups_are_another_program() -> None:
    """Of the same shapes, in one learner; each state goes on with its own."""
    adf = adfpp.ADF(counted)
    three, five = adf.init(KEY, GROUP, y=Y), adf.init(KEY, FIVE, y=Y)
    assert (three.belief.mean.shape, five.belief.mean.shape) == ((3,), (5,))
    three, _ = adf.update(three, GROUP, y=Y)
    five, _ = adf.update(five, FIVE, y=Y)
    np.testing.assert_allclose(three.belief.mean, exact(GROUP, Y, 3), atol=1e-10)
    np.testing.assert_allclose(five.belief.mean, exact(FIVE, Y, 5), atol=1e-10)
    _, info = adf.update(three, FIVE, y=Y)
    assert (np.asarray(info.status) == adfpp.Status.OUT_OF_SUPPORT).tolist() == (FIVE > 2).tolist()
    with pytest.raises(adfpp.ModelError, match="sizes"):
        adfpp.ADF(means(COUNTS["np.unique"])).update(three, FIVE, y=Y)


def test_a_run_goes_on_with_fewer_groups() -> None:
    """The sizes are those of the state, and the result of EP has them, too."""
    adf = adfpp.ADF(counted)
    result = adf.run(KEY, GROUP, y=Y, progress_bar=False)
    result = adf.run(KEY, np.array([1, 1]), y=np.ones(2), state=result, progress_bar=False)
    expected = exact(np.append(GROUP, [1, 1]), np.append(Y, [1.0, 1.0]), 3)
    np.testing.assert_allclose(result.state.belief.mean, expected, atol=1e-10)
    ep = adfpp.EP(counted).run(KEY, GROUP, y=Y, progress_bar=False)
    np.testing.assert_allclose(ep.state.belief.mean, exact(GROUP, Y, 3), atol=1e-10)


def test_a_pickled_learner_keeps_the_sizes() -> None:
    """Although the rows that it gets have one group."""
    adf = adfpp.ADF(counted)
    state = adf.init(KEY, GROUP, y=Y)
    again, state = pickle.loads(pickle.dumps((adf, state)))
    state, _ = again.update(state, GROUP[:1], y=Y[:1])
    np.testing.assert_allclose(state.belief.mean, exact(GROUP[:1], Y[:1], 3), atol=1e-10)


def test_the_plan_says_what_was_read() -> None:
    """A count is named with its value, and labels with their number."""
    assert "np.unique = 3 values" in str(adfpp.ADF(counted).explain(GROUP, y=Y))
    assert "np.max = 2" in adfpp.ADF(means(COUNTS["np.max"])).explain(GROUP, y=Y).sizes
    assert "sizes" not in str(adfpp.ADF(means(lambda group: 3)).explain(GROUP, y=Y))


def test_a_shared_array_that_sizes_were_read_out_of_may_not_change() -> None:
    """The sizes would be old ones."""

    def model(x: Array, knots: Array, y: Array | None = None) -> None:
        z = sample("z", dist.Normal(0, 1).expand([len(np.unique(knots))]))
        with rows(x):
            sample("y", dist.Normal(x * z.sum(), SCALE), obs=y)

    adf = adfpp.ADF(model)
    state = adf.init(KEY, Y, np.array([1.0, 2.0, 2.0]), y=Y)
    assert state.belief.mean.shape == (2,)
    with pytest.raises(adfpp.ModelError, match="'knots'.*np.unique"):
        adf.update(state, Y, np.array([1.0, 2.0, 3.0]), y=Y)


def test_refuses_sizes_of_shapes_alone() -> None:
    """There are no values to count."""
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (GROUP, Y)]
    with pytest.raises(adfpp.ModelError, match=r"np\.unique"):
        adfpp.ADF(means(COUNTS["np.unique"])).explain(*shapes)


def test_refuses_a_number_read_out_of_a_latent() -> None:
    """It is not the same in every run."""

    def model(group: Array, y: Array | None = None) -> None:
        mu = sample("mu", dist.Normal(0, 1))
        n = len(np.unique(group)) + int(jnp.floor(mu))
        with rows(group):
            sample("y", dist.Normal(mu + n, SCALE), obs=y)

    says(refusal(model, GROUP, y=Y), "value", "latents", "after latent 'mu'")


def test_refuses_rows_that_a_size_ties_together() -> None:
    """The number of rows is no size of one row."""

    def model(x: Array, y: Array | None = None) -> None:
        w = sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", int(jnp.sum(x == x))):
            sample("y", dist.Normal(w, SCALE), obs=y)

    says(refusal(model, Y, y=Y), "not on two rows", "plate", str(ROWS))


# ------------------------------------------------------------------------------------------ examples of NumPyro


def annotation(positions: Array, annotations: Array, sizes: tuple[int, int] | None = None) -> None:
    """Annotators with confusion matrices; the true class of an item is summed out."""
    annotators, classes = sizes or (int(np.max(positions)) + 1, int(np.max(annotations)) + 1)
    items, places = annotations.shape
    with numpyro.plate("annotator", annotators, dim=-2), numpyro.plate("class", classes):
        beta = sample("beta", dist.Dirichlet(jnp.ones(classes)))
    pi = sample("pi", dist.Dirichlet(jnp.ones(classes)))
    with numpyro.plate("item", items, dim=-2):
        c = sample("c", dist.Categorical(pi))
        with numpyro.plate("position", places):
            sample("y", dist.Categorical(beta[positions, c]), obs=annotations)


@handlers.reparam(config={name: LocScaleReparam(0) for name in ("region", "area", "age_steps", "year_steps")})
def mortality(
    age: Array,
    area: Array,
    year: Array,
    lookup: Array,
    population: Array,
    deaths: Array | None = None,
    sizes: tuple[int, int, int, int] | None = None,
) -> None:
    """Random walks over ages and years, and areas in regions; ``lookup`` has the region of each area."""
    found = sizes or tuple(len(np.unique(a)) for a in (lookup, area, age, year))
    regions, areas, ages, years = found
    scales = [sample(f"sigma_{name}", dist.HalfNormal(1.0)) for name in ("region", "area", "age", "year")]
    with numpyro.plate("regions", regions, dim=-2):
        of_region = sample("region", dist.Normal(0, scales[0]))
    with numpyro.plate("areas", areas, dim=-2):
        of_area = sample("area", dist.Normal(of_region[lookup], scales[1]))
    with numpyro.plate("ages", ages, dim=-3):
        steps = jnp.pad(jnp.broadcast_to(scales[2], ages - 1), (1, 0), constant_values=10.0)[:, None, None]
        of_age = jnp.cumsum(sample("age_steps", dist.Normal(0, steps)), -3)
    with numpyro.plate("years", years - 1, dim=-1):
        of_year = jnp.pad(jnp.cumsum(sample("year_steps", dist.Normal(0, scales[3])), -1), (1, 0))
    rate = (of_age + of_area + of_year)[age, area, year]
    with numpyro.plate("N", len(population)):
        sample("deaths", dist.Binomial(population, logits=rate), obs=deaths)


def truncated(num_observations: int, low: float, x: Array | None = None, sizes: None = None) -> None:
    """The number of observations is an argument, so that the model can simulate, too."""
    del sizes
    loc, scale = sample("loc", dist.Normal()), sample("scale", dist.LogNormal())
    with numpyro.plate("observations", num_observations):
        sample("x", dist.TruncatedNormal(loc, scale, low=low), obs=x)


_CODES = np.stack(np.meshgrid(*map(np.arange, (3, 4, 3)), indexing="ij"), -1).reshape(-1, 3)
EXAMPLES: dict[str, tuple[Callable[..., None], tuple[object, ...], object, int]] = {
    "annotation": (
        annotation,
        (np.array([0, 0, 1, 2]), np.array([[0, 0, 1, 0], [1, 1, 1, 0], [0, 1, 0, 0]])),
        (3, 2),
        7,
    ),
    "mortality": (
        mortality,
        (*_CODES.T, np.array([0, 0, 1, 1]), np.full(36, 50), np.arange(36) % 7 + 1),
        (2, 4, 3, 3),
        4 + 2 + 4 + 3 + 2,
    ),
    "truncated": (truncated, (8, -1.2, np.linspace(-1.0, 2.0, 8)), None, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_numpyro_are_read_as_with_given_sizes(name: str) -> None:
    """The same latents and densities as of a model that is told its sizes; NumPyro's documentation has the examples."""
    model, data, sizes, numbers = EXAMPLES[name]
    found, told = program(model, *data), program(model, *data, sizes=sizes)
    assert [(v.name, v.shape) for v in found.latents] == [(v.name, v.shape) for v in told.latents]
    assert found.size == numbers
    theta = 0.3 * np.random.default_rng(0).normal(size=(2, numbers))
    joint, expected = Joint(found, data, {}), Joint(told, data, {"sizes": sizes})
    for latent, values in expected.log_prior(theta).items():
        np.testing.assert_allclose(joint.log_prior(theta)[latent], values, rtol=1e-12)
    np.testing.assert_allclose(joint.log_joint(theta), expected.log_joint(theta), rtol=1e-12)
    assert [f.field_size for f in found.factors] == [f.field_size for f in told.factors]
