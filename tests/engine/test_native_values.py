"""Native families of one component: values in their supports, and members that match draws."""

import jax.numpy as jnp
import numpy as np
import pytest

from adfpp.engine.families.product.dirichlet import Beta, Dirichlet
from adfpp.engine.families.product.exponential import Exponential
from adfpp.engine.families.product.finite import Finite
from adfpp.engine.families.product.gamma import Gamma

RNG = np.random.default_rng(0)
TWO, THREE = np.array([0.0, 1.0]), np.array([-1.0, 0.0, 2.0])
CHANCES = np.array([2.0, 4.0, 1.0]) / 7
# A family, natural parameters of a member, and draws of it by NumPy (a Dirichlet is matched as a Beta is).
FAMILIES: dict[str, tuple[Exponential, list[float], np.ndarray | None]] = {
    "gamma": (Gamma(), [3.0, 2.0], RNG.gamma(3.0, 1 / 2.0, 20000)),
    "beta": (Beta(), [2.0, 3.0], RNG.beta(2.0, 3.0, 20000)),
    "dirichlet": (Dirichlet(3), [2.0, 3.0, 4.0], None),
    "bernoulli": (Finite(tuple(TWO)), [np.log(3.0)], RNG.choice(TWO, 20000, p=[0.25, 0.75])),
    "categorical": (Finite(tuple(THREE)), [np.log(2.0), np.log(0.5)], RNG.choice(THREE, 20000, p=CHANCES)),
}
LIMITS = {"gamma": (0.0, np.inf), "beta": (0.0, 1.0), "dirichlet": (0.0, 1.0)}

every_family = pytest.mark.parametrize("name", FAMILIES)


@every_family
def test_interior_values_lie_in_the_support(name: str) -> None:
    """Strictly inside, whatever the number of components."""
    family = FAMILIES[name][0]
    values = family.interior(np.random.default_rng(0), 5)
    assert values.shape == (5, family.dim)
    if family.levels:
        assert set(values.ravel()) <= set(family.levels)
    else:
        low, high = LIMITS[name]
        assert np.all((low < values) & (values < high))
    if name == "dirichlet":
        np.testing.assert_allclose(values.sum(1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("name", [name for name, (_, _, draws) in FAMILIES.items() if draws is not None])
def test_draws_are_matched(name: str) -> None:
    """The member with the expected statistics of many draws of a member is that member, to sampling error."""
    family, eta, draws = FAMILIES[name]
    assert draws is not None
    natural, proper = family.match(draws.reshape(len(draws), 1, -1), jnp.float64)
    assert proper
    np.testing.assert_allclose(natural, [eta], atol=0.15)


@every_family
def test_probes_identify_a_member(name: str) -> None:
    """A continuous family is probed at more points than it has parameters, whose statistics are independent."""
    family, _, _ = FAMILIES[name]
    if family.levels:
        assert len(family.levels) == family.numbers + 1
        return
    probes = family.probes()
    features = np.concatenate([np.ones((len(probes), 1)), np.asarray(family.stats(jnp.asarray(probes)))], 1)
    assert np.linalg.matrix_rank(features) == family.numbers + 1


def test_a_value_that_was_never_drawn_stays_possible() -> None:
    """As if one more draw had been even."""
    natural, proper = Finite((0.0, 1.0)).match(np.zeros((9, 1, 1)), jnp.float64)
    assert proper
    np.testing.assert_allclose(natural, np.log([[0.05 / 0.95]]), rtol=1e-12)


def test_draws_at_the_edge_of_a_support_are_moved_inside() -> None:
    """A Beta draw may round to 1; draws that are all the same have no member."""
    values = np.array([0.2, 0.6, 1.0]).reshape(3, 1, 1)
    natural, proper = Beta().match(values, jnp.float64)
    assert proper
    assert np.isfinite(natural).all()
    _, proper = Gamma().match(np.ones((3, 1, 1)), jnp.float64)
    assert not proper
