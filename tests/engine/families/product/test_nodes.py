"""Quadratures against densities of components: expectations to the precision of the dtype."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from adfpp.engine.families.product.dirichlet import Beta, Dirichlet
from adfpp.engine.families.product.exponential import Exponential
from adfpp.engine.families.product.finite import Finite
from adfpp.engine.families.product.gamma import Gamma, InverseGamma
from adfpp.engine.families.product.nodes import Nodes
from tests.engine.families.product.members import FINITE, exact_expected, members, mp, quadrature


def root_mean(family: Exponential, eta: np.ndarray) -> np.ndarray:
    """E[√s_1], or of 1/√s for the inverse Gamma, in closed form."""
    out = []
    for e in eta:
        a, *rest = (mp.mpf(float(x)) for x in e)
        half = mp.loggamma(a + 0.5) - mp.loggamma(a)
        if family.name in ("gamma", "inverse_gamma"):
            out.append(float(mp.exp(half) / mp.sqrt(rest[0])))
        else:
            total = a + mp.fsum(rest)
            out.append(float(mp.exp(half + mp.loggamma(total) - mp.loggamma(total + 0.5))))
    return np.array(out)


def miss(family: Exponential, eta: np.ndarray, nodes: Nodes, weights: np.ndarray) -> float:
    """The worst relative error of E[T] (of E log s relative to 1 + its size) and of E[√s]."""
    exact = np.array([[float(x) for x in exact_expected(family, e)] for e in eta])
    found = np.einsum("im,imn->in", weights, nodes.stats)
    logs = np.ones(family.numbers, bool)
    if family.name in ("gamma", "inverse_gamma"):
        logs[1] = False
    error = np.abs(found - exact) / (np.abs(exact) + logs)
    power = -0.5 if family.name == "inverse_gamma" else 0.5
    roots = np.einsum("im,im->i", weights, nodes.values[..., 0] ** power) / root_mean(family, eta) - 1.0
    return max(error.max(), np.abs(roots).max())


@pytest.mark.slow
@pytest.mark.parametrize("family", [Gamma(), InverseGamma(), Beta()], ids=str)
def test_nodes_of_one_dimension(family: Exponential):
    """Exact to 1e-8 at level 0 all over the ranges, less so with fewer nodes; the coarse rule is the worse one."""
    eta = members(family, 32)
    levels = [0] if family.name == "inverse_gamma" else [0, 1, 2]  # fewer nodes are the Gamma's
    counts, errors = [], []
    for level in levels:
        nodes = jax.tree.map(np.asarray, quadrature(family, level)(eta))
        np.testing.assert_allclose(nodes.weights.sum(-1), 1.0, rtol=1e-12)
        np.testing.assert_allclose(nodes.coarse.sum(-1), 1.0, rtol=1e-12)
        assert np.isfinite(nodes.values).all() and np.isfinite(nodes.stats).all()
        assert (nodes.values > 0.0).all()
        counts.append(nodes.weights.shape[-1])
        errors.append((miss(family, eta, nodes, nodes.weights), miss(family, eta, nodes, nodes.coarse)))
    assert counts == [168, 42, 22][: len(levels)]
    assert all(fine < limit for (fine, _), limit in zip(errors, (1e-8, 1e-3, 5e-2), strict=False)), errors
    assert all(coarse > 10 * fine for fine, coarse in errors)


def test_nodes_of_a_dirichlet():
    """A broken stick: coarser nodes the more pieces there are, and none at all where only draws will do."""
    three = Dirichlet(3)
    eta = np.array([[0.5, 2.0, 7.0], [30.0, 4.0, 11.0], [1.0, 1.0, 1.0]])
    nodes = jax.tree.map(np.asarray, quadrature(three, 0)(eta))
    assert nodes.values.shape == (3, 42**2, 3)
    np.testing.assert_allclose(nodes.values.sum(-1), 1.0, rtol=1e-12)
    assert miss(three, eta, nodes, nodes.weights) < 1e-6
    pairs = np.einsum("im,imj,imk->ijk", nodes.weights, nodes.values, nodes.values)
    moments = [stats.dirichlet.cov(e) + np.outer(stats.dirichlet.mean(e), stats.dirichlet.mean(e)) for e in eta]
    np.testing.assert_allclose(pairs, moments, rtol=1e-6)
    assert jax.eval_shape(Dirichlet(4).nodes, jnp.ones(4)).values.shape == (22**3, 4)
    with pytest.raises(ValueError, match="size 5 has no quadrature"):
        Dirichlet(5).nodes(jnp.ones(5))


@pytest.mark.parametrize("family", FINITE, ids=str)
def test_nodes_of_a_finite_support_are_its_values(family: Finite):
    """With their probabilities: any expectation is exact."""
    eta = jnp.asarray(members(family, 1, seed=8)[0] / 700)
    nodes = family.nodes(eta)
    np.testing.assert_array_equal(nodes.values[:, 0], family.values)
    np.testing.assert_allclose(nodes.weights @ nodes.stats, family.expected(eta), rtol=1e-14)
    np.testing.assert_allclose(nodes.weights @ nodes.values, family.moments(eta)[0], rtol=1e-14, atol=1e-15)
    np.testing.assert_array_equal(nodes.coarse, nodes.weights)


@pytest.mark.usefixtures("float32")
def test_nodes_in_float32():
    """As good as the dtype, and never at an end of the support."""
    family = Beta()
    eta = members(family, 32)
    nodes = jax.tree.map(np.asarray, quadrature(family, 0)(eta.astype(np.float32)))
    assert nodes.weights.dtype == np.float32
    assert all(np.isfinite(each).all() for each in nodes)
    assert (nodes.values > 0.0).all() and (nodes.values < 1.0).all()
    exact = np.array([[float(x) for x in exact_expected(family, e)] for e in eta])
    found = np.einsum("im,imn->in", nodes.weights, nodes.stats)
    np.testing.assert_allclose(found, exact, rtol=2e-5, atol=2e-5)
