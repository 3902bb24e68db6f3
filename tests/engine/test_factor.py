"""Factors: fields, flags, tilts and densities of an observation's elements, against what they were made from."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from adfpp.engine.factor import ClosedFactor, Factor, IntegralFactor, Observation, ReadyFactor
from adfpp.engine.grouping import build_factors
from adfpp.engine.tilt import AUTO, MONTE_CARLO, ClosedForm, Moments, MonteCarlo, Tilted, Variational, normal_tilt
from adfpp.engine.trace import Trace, trace

Array = Any
N, E = 3, 2
THETA, ROW = jax.ShapeDtypeStruct((N,), jnp.float64), jax.ShapeDtypeStruct((E,), jnp.float64)
NORMAL = ClosedForm(normal_tilt, "loc", ("scale",), 0)
NOISE = np.array([0.5, 2.0])
WEIGHTS = np.array([[1.0, 2.0, 0.0], [0.0, -1.0, 3.0]])
Y = np.array([0.7, -1.1])
NAMES = [("a", slice(0, 1)), ("b", slice(1, 3))]


def row(theta: Array, y: Array) -> list[Array]:
    """Two normal values, whose locations are affine in θ: log-density, locations, and flags."""
    location = jnp.asarray(WEIGHTS) @ theta + 0.25
    log_prob = -0.5 * ((y - location) / NOISE) ** 2 - jnp.log(NOISE) - 0.5 * jnp.log(2 * jnp.pi)
    return [log_prob, location, y, y > -100.0, jnp.isfinite(y), jnp.asarray(NOISE), location > 0.0]


PROGRAM: Trace = trace(row, THETA, ROW)


def factors(moments: Moments = AUTO, closed: bool = True, counted: int = 3) -> list[Factor]:
    """The factors of the row."""
    log_prob, location, value, *_ = PROGRAM.outputs
    flags = PROGRAM.outputs[counted], PROGRAM.outputs[3], PROGRAM.outputs[4]
    form = {"closed": NORMAL, "value": value, "field": location, "constants": (PROGRAM.outputs[5],)} if closed else {}
    return build_factors(PROGRAM, [Observation("y", E, log_prob, *flags, **form)], moments, NAMES)


def only(kind: type, *args: Any, **kwargs: Any) -> Any:
    """The only factor, of this kind."""
    (factor,) = factors(*args, **kwargs)
    assert isinstance(factor, kind)
    return factor


def test_a_closed_form_is_used_where_it_applies() -> None:
    factor = only(ClosedFactor)
    assert (factor.name, factor.count, factor.field_size, factor.elements) == ("y", E, 1, (0, 1))
    assert factor.why == "closed form: loc is affine, scale constant" and factor.field == "affine in a, b"
    assert (factor.divisible, factor.draws, factor.local) == (False, False, None)


def test_other_rules_where_it_does_not() -> None:
    """Closed forms are switched off, or a flag depends on θ."""
    assert only(IntegralFactor, Moments(closed=False)).why == "adaptive quadrature: 1-dimensional integral"
    assert only(IntegralFactor, closed=False).divisible
    assert only(IntegralFactor, counted=6).rule == AUTO.quadrature
    assert only(IntegralFactor, MONTE_CARLO).draws
    limit = only(IntegralFactor, Moments(quadrature=Variational()), closed=False)
    assert limit.rule.power_limit and limit.divisible


@pytest.mark.parametrize("closed", [True, False])
def test_fields_are_affine(closed: bool) -> None:
    """A and h, at a θ, and the coordinates that they read."""
    factor = only(Factor, closed=closed)
    theta = np.array([0.3, -0.2, 0.9])
    matrix, field = factor.matrices(jnp.asarray(theta), jnp.asarray(Y))
    # the field of the integral is the standardised residual, or another affine function of the location
    location = WEIGHTS @ theta + 0.25
    slope = matrix[:, 0, 1] / WEIGHTS[:, 1]
    np.testing.assert_allclose(matrix[:, 0], slope[:, None] * WEIGHTS)
    at_zero = factor.matrices(jnp.zeros(N), jnp.asarray(Y))[1]
    np.testing.assert_allclose(field - at_zero, slope[:, None] * (location - 0.25)[:, None])
    if closed:
        np.testing.assert_allclose(field[:, 0], location)
    touched, most = factor.reach([np.arange(1), np.arange(1, N)])
    assert touched.tolist() == [[True, True, True]] and most.tolist() == [[1, 2]]


def test_flags() -> None:
    """Constant ones are evaluated; one that depends on θ is left to the log-density."""
    y = jnp.array([-200.0, jnp.nan])
    counted, supported, finite = only(Factor).flags(y)
    assert (counted.tolist(), supported.tolist(), finite.tolist()) == ([False] * 2, [False] * 2, [True, False])
    assert only(Factor, counted=6).flags(y)[0].tolist() == [True, True]


@pytest.mark.parametrize("kind", ["closed", "integral"])
def test_tilts_and_densities(kind: str) -> None:
    """Bayesian regression on one number; the density is the normal density."""
    factor = only(Factor, closed=kind == "closed")
    matrix, field = factor.matrices(jnp.zeros(N), jnp.asarray(Y))
    slope = np.asarray(matrix)[:, 0, 1] / WEIGHTS[:, 1]  # of the field as a function of the location

    @jax.jit
    def both(y: Array, e: Array) -> tuple[Any, Array]:
        sd = jnp.abs(jnp.asarray(slope))[e] * 1.5
        ready = ReadyFactor(factor, [y], None)
        return ready.tilt(e, field[e], sd[None, None]), ready.log_density()(field[e], e)

    for e in range(E):
        tilted, density = both(jnp.asarray(Y), jnp.asarray(e))
        assert isinstance(tilted, Tilted)
        total = np.sqrt(1.5**2 + NOISE[e] ** 2)
        np.testing.assert_allclose(tilted.log_z, stats.norm.logpdf(Y[e], 0.25, total), atol=1e-7)
        shift = np.sign(slope[e]) * 1.5 / total**2 * (Y[e] - 0.25)
        np.testing.assert_allclose(tilted.shift, [shift], atol=1e-6)
        np.testing.assert_allclose(np.abs(tilted.root), [[NOISE[e] / total]], atol=1e-6)
        np.testing.assert_allclose(density, stats.norm.logpdf(Y[e], 0.25, NOISE[e]))


def test_a_power_is_taken_by_integrals_alone() -> None:
    """The square root of a normal density is one of twice the variance."""
    factor, closed = only(IntegralFactor, closed=False), only(ClosedFactor)
    one = jnp.ones((1, 1))
    run = jax.jit(lambda y, p: factor.prepare(y)(0, factor.matrices(jnp.zeros(N), y)[1][0], one, p))
    half, whole = run(jnp.asarray(Y), 0.5), run(jnp.asarray(Y), 1.0)
    precision = [1 / float(t.root[0, 0]) ** 2 - 1 for t in (half, whole)]
    assert precision[0] == pytest.approx(0.5 * precision[1], rel=1e-6)
    with pytest.raises(AssertionError, match="is for the whole factor"):
        closed.prepare(jnp.asarray(Y))(0, jnp.zeros(1), one, 0.5)


def test_elements_that_theta_does_not_reach_add_to_the_evidence_alone() -> None:
    """One element depends on θ, the other does not: two factors, the second with an empty field."""

    def mixed(theta: Array, y: Array) -> list[Array]:
        return [-jnp.exp(jnp.concatenate([theta[:1], y[:1]])), y]

    program = trace(mixed, THETA, ROW)
    built = build_factors(program, [Observation("y", 2, program.outputs[0], None, None, None)], AUTO, NAMES)
    assert [(f.elements, f.field_size, f.field) for f in built] == [
        ((0,), 1, "affine in a"),
        ((1,), 0, "none: the row does not depend on the latents"),
    ]
    matrix, field = built[1].matrices(jnp.zeros(N), jnp.asarray(Y))
    assert matrix.shape == (1, 0, N) and field.shape == (1, 0)
    tilted = built[1].prepare(jnp.asarray(Y))(0, jnp.zeros(0), jnp.zeros((0, 0)))
    np.testing.assert_allclose(tilted.log_z, -np.exp(Y[0]))
    np.testing.assert_allclose(
        ReadyFactor(built[0], [jnp.asarray(Y)], None).log_density()(jnp.array([0.4]), 0), -np.exp(0.4)
    )


def test_a_density_that_the_field_does_not_determine() -> None:
    """A closed form may know more than the log-density shows: then a cavity without width gives the density."""

    def hidden(theta: Array, y: Array) -> list[Array]:
        location = jnp.asarray(WEIGHTS) @ theta
        return [-jnp.abs(y - location) + 0.0 * jnp.sin(theta[0]), location, y, jnp.asarray(NOISE)]

    program = trace(hidden, THETA, ROW)
    log_prob, location, value, noise = program.outputs
    flags = None, None, None
    observation = Observation("y", E, log_prob, *flags, NORMAL, value, location, (noise,))
    (factor,) = build_factors(program, [observation], AUTO, NAMES)
    assert isinstance(factor, ClosedFactor) and factor.tail is None
    density = ReadyFactor(factor, [jnp.asarray(Y)], None).log_density()(jnp.array([0.2]), 1)
    np.testing.assert_allclose(density, stats.norm.logpdf(Y[1], 0.2, NOISE[1]))


def test_keys_of_elements() -> None:
    """Elements have points of their own, and the same points with the same key."""
    program = trace(lambda theta, y: [-jnp.exp(jnp.asarray(WEIGHTS) @ theta * y)], THETA, ROW)
    observation = Observation("y", E, program.outputs[0], None, None, None)
    few = Moments(max_quadrature=0, monte_carlo=MonteCarlo(points=64))
    (factor,) = build_factors(program, [observation], few, NAMES)

    @jax.jit
    def shifts(y: Array, keys: Array) -> Array:
        """Of the same cavity, with each of these keys."""
        return jax.vmap(lambda k: ReadyFactor(factor, [y], k).tilt(0, jnp.zeros(1), jnp.eye(1)).shift[0])(keys)

    keys = jnp.stack([jax.random.key(0), jax.random.key(0), jax.random.key(1)])
    first, again, other = np.asarray(shifts(jnp.ones(E), keys))
    assert first == again != other
    one, two = (ReadyFactor(factor, [jnp.asarray(Y)], keys[0]).key_of(e) for e in (0, 1))
    assert one is not None and two is not None
    assert not jnp.array_equal(jax.random.key_data(one), jax.random.key_data(two))
