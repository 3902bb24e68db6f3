"""Which rule is chosen, and the closed forms that take precedence."""

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

from adfpp.distributions import Probit, Rosenblatt
from adfpp.engine.tilt import (
    ACCURATE,
    AUTO,
    MONTE_CARLO,
    QUADRATURE,
    Conditional,
    MonteCarlo,
    Quadrature,
    Tilted,
    Variational,
    moments_named,
    normal_tilt,
    probit_tilt,
    rosenblatt_tilt,
    whole_line,
)
from adfpp.engine.tilt.conditional import DrawnConditional
from adfpp.engine.tilt.strategy import Moments
from adfpp.model.closed_forms import closed_form, register_tilt
from tests.engine.tilt.common import worst
from tests.oracles import gaussian_moments


def test_a_users_closed_form_is_registered_and_used() -> None:
    class UnitNormal(dist.Normal):
        pass

    class Narrower(UnitNormal):
        pass

    assert closed_form(UnitNormal(0.0)) is None  # a subclass does not inherit the rule of Normal

    @register_tilt(UnitNormal, field="loc")
    def unit_normal(value: Any, mean: Any, scale: Any) -> Tilted:
        total = 1.0 + scale**2
        log_z = -0.5 * (value - mean) ** 2 / total - 0.5 * jnp.log(2 * jnp.pi * total)
        return Tilted(log_z, scale * (value - mean) / total, 1 / jnp.sqrt(total))

    form = closed_form(UnitNormal(0.0))
    assert form is not None
    assert (form.field, form.constants, form.event_dim) == ("loc", (), 0)
    assert form.rule is unit_normal
    assert closed_form(Narrower(0.0)) is None
    out = whole_line(form.rule)(jnp.asarray(0.7), jnp.asarray([0.1]), jnp.asarray([[2.0]]))
    assert (out.shift.shape, out.root.shape, out.error) == ((1,), (1, 1), 0.0)
    assert worst(out, gaussian_moments(0.7, 1.0, 0.1, 2.0)) < 1e-14


def test_the_shipped_forms_are_registered() -> None:
    for likelihood, rule, constants in (
        (Probit(0.0), probit_tilt, ("noise", "flip")),
        (Rosenblatt(0.0), rosenblatt_tilt, ("beta",)),
        (dist.Normal(0.0, 1.0), normal_tilt, ("scale",)),
    ):
        form = closed_form(likelihood)
        assert form is not None
        assert (form.rule, form.constants, form.event_dim) == (rule, constants, 0)
    assert closed_form(dist.Bernoulli(logits=0.0)) is None


def test_small_fields_are_integrated_by_quadrature_and_large_ones_by_monte_carlo() -> None:
    assert AUTO.choose(3) == (AUTO.quadrature, "adaptive quadrature: 3-dimensional integral")
    assert isinstance(AUTO.choose(4).rule, MonteCarlo) and "a field of 4 is too large" in AUTO.choose(4).why
    assert AUTO.closed and not QUADRATURE.closed and isinstance(QUADRATURE.choose(1).rule, Quadrature)
    assert isinstance(MONTE_CARLO.choose(1).rule, MonteCarlo) and not MONTE_CARLO.conditional


def test_a_conditional_rule_keeps_the_tolerances_of_the_quadrature() -> None:
    assert ACCURATE.conditional
    choice = ACCURATE.choose_conditional((2,))
    assert choice is not None
    rule, why = choice
    assert rule == Conditional(
        (2,), Quadrature(tol=1e-11, report=1e-8, max_panels=400, tensor_tol=1e-8, tensor_nodes=5)
    )
    assert why == "1-dimensional integral: Gaussian in the rest"
    algebra, several = ACCURATE.choose_conditional(()), AUTO.choose_conditional((0, 1, 2, 5))
    assert algebra is not None and algebra.why == "Gaussian: by algebra"
    assert several is not None and several.rule == DrawnConditional((0, 1, 2, 5), MonteCarlo())
    assert several.why == "quasi-Monte-Carlo, 4-dimensional integral: Gaussian in the rest"
    limit = Moments(quadrature=Variational(), monte_carlo=Variational())
    assert not limit.conditional and limit.choose(2).rule.power_limit and limit.choose(9).rule.power_limit


def test_strategies_have_names() -> None:
    assert moments_named("accurate") is ACCURATE
    assert moments_named(ACCURATE) is ACCURATE
    with pytest.raises(ValueError, match=r"moments='best' is not known; use one of .*'accurate'"):
        moments_named("best")
