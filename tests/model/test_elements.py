"""One distribution: its independent elements, its kind and its support."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to, constraints
from scipy import stats

from adfpp.model.elements import (
    elements,
    enumerable_values,
    is_factor,
    is_improper,
    is_masked,
    same_transform,
    scalar_base,
    support_in_words,
)
from adfpp.model.visit import quiet
from tests.model.common import HOLES, SEEN, Y

VALUES = np.stack([Y, 2.0 * Y], 1)  # (6, 2)


@pytest.mark.parametrize(
    "fn",
    [
        dist.Normal(jnp.zeros((6, 2)), 0.7),
        dist.Normal(jnp.zeros((6, 2)), 0.7).to_event(1),
        dist.Normal(0.0, 0.7).expand([6, 2]).to_event(2),
        dist.Normal(jnp.zeros(2), 0.7).expand([6, 2]),
    ],
)
def test_elements_do_not_depend_on_the_wrappers(fn: dist.Distribution) -> None:
    """One log-density an element, however the elements are grouped."""
    each = elements(fn, VALUES)
    assert each.shape == (6, 2)
    assert each.mask is None
    assert isinstance(each.inner, dist.Normal)
    np.testing.assert_allclose(each.log_prob, stats.norm.logpdf(VALUES, 0.0, 0.7), rtol=1e-12)


def test_a_correlated_event_is_one_element() -> None:
    """Of a multivariate normal nothing is taken apart."""
    each = elements(dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)).expand([6]).to_event(1), VALUES)
    assert each.shape == (6,)
    np.testing.assert_allclose(each.log_prob, stats.norm.logpdf(VALUES).sum(1), rtol=1e-12)


def test_masks_are_collected_from_all_wrappers() -> None:
    """Inside and outside of an event, over rows and over elements; NaN behind a mask does no harm."""
    columns = np.array([True, False])
    fn = dist.Normal(jnp.zeros((6, 2)), 0.7).mask(columns).to_event(1).mask(SEEN)
    with quiet():
        each = elements(fn, np.stack([HOLES, HOLES], 1))
    np.testing.assert_array_equal(each.counted(), SEEN[:, None] & columns)
    masked = np.asarray(each.masked_log_prob())
    np.testing.assert_array_equal(masked[~np.asarray(each.counted())], 0.0)
    np.testing.assert_allclose(masked[SEEN, 0], stats.norm.logpdf(Y[SEEN], 0.0, 0.7), rtol=1e-12)


def test_kinds_are_seen_through_wrappers() -> None:
    """A factor, an improper prior and a mask, each behind ``expand`` and ``to_event``."""
    normal = dist.Normal(0, 1).expand([3]).to_event(1)
    assert is_factor(dist.Unit(jnp.zeros(3)).to_event(1))
    assert is_improper(dist.ImproperUniform(constraints.real, (), ()).expand([3]))
    assert is_masked(dist.Normal(0, 1).mask(jnp.asarray(False)).expand([3]))
    assert not is_masked(dist.Normal(0, 1).mask(jnp.asarray(True)).expand([3]))  # it changes nothing
    assert not (is_factor(normal) or is_improper(normal) or is_masked(normal))
    assert isinstance(scalar_base(normal), dist.Normal)


def test_values_are_listed_where_there_are_finitely_many() -> None:
    """A Poisson has no end; an event of several indicators lists those of one."""
    np.testing.assert_array_equal(enumerable_values(dist.Categorical(jnp.ones(3) / 3)), [0, 1, 2])
    np.testing.assert_array_equal(enumerable_values(dist.Bernoulli(0.5).expand([4]).to_event(1)), [0, 1])
    np.testing.assert_array_equal(enumerable_values(dist.Binomial(3, 0.5)), [0, 1, 2, 3])
    assert enumerable_values(dist.Poisson(1.0)) is None


def test_transforms_are_the_same_by_their_numbers() -> None:
    """Bounds as numbers and as arrays; other bounds are others."""
    numbers = biject_to(constraints.interval(-1.0, 2.0))
    arrays = biject_to(constraints.interval(jnp.asarray(-1.0), jnp.asarray(2.0)))
    assert same_transform(numbers, arrays)
    assert same_transform(numbers, biject_to(constraints.independent(constraints.interval(-1.0, 2.0), 1)))
    assert not same_transform(numbers, biject_to(constraints.interval(-1.0, 3.0)))
    assert not same_transform(numbers, biject_to(constraints.positive))


def test_supports_have_names() -> None:
    """For messages."""
    assert support_in_words(dist.HalfNormal(1.0)) == "positive"
    assert support_in_words(dist.Dirichlet(jnp.ones(3))) == "simplex"
