"""The registry of closed-form tilts."""

import jax.numpy as jnp
import numpyro.distributions as dist

from adfpp.distributions import Probit
from adfpp.engine.tilt import Tilted
from adfpp.model.closed_forms import closed_form, register_tilt, registered_tilts
from tests.model.common import SCALE, Array, X, Y, program, rows, sample, weights


class UnitNormal(dist.Normal):
    """A class of its own."""


def test_only_the_class_itself_has_a_rule() -> None:
    """A subclass may override the density."""
    form = closed_form(dist.Normal(0.0, 1.0))
    assert form is not None
    assert (form.field, form.constants, form.event_dim) == ("loc", ("scale",), 0)
    assert closed_form(Probit(0.0)) is not None
    assert closed_form(UnitNormal(0.0, 1.0)) is None


class Late(dist.Normal):
    """Registered after a model was read with it."""


def late(x: Array, y: Array) -> None:
    """A likelihood of that class."""
    w = weights()
    with rows(x):
        sample("y", Late(x @ w, SCALE), obs=y)


def test_a_registration_changes_how_models_are_read() -> None:
    """What is registered tells programs apart that were read before and after."""
    before, registered = program(late, X, Y), registered_tilts()

    @register_tilt(Late, field="loc", constants=("scale",))
    def rule(value: Array, mean: Array, scale: Array, noise: Array) -> Tilted:
        return Tilted(jnp.zeros(()), jnp.zeros(()), jnp.ones(()))

    after = program(late, X, Y)
    assert type(before.factors[0].rule).__name__ != "ClosedForm"
    assert getattr(after.factors[0].rule, "rule", None) is rule
    assert registered_tilts() - registered == {(Late, after.factors[0].rule)}
    assert hash(registered_tilts()) != hash(registered)
