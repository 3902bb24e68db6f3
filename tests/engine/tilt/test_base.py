"""What every rule offers to the kernel, and the answers of rules."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from adfpp.engine.tilt import (
    ClosedForm,
    Conditional,
    IntegralRule,
    Landmarks,
    Message,
    MonteCarlo,
    Quadrature,
    Rule,
    Tilted,
    Variational,
    probit_tilt,
)

FORM = ClosedForm(probit_tilt, "loc", ("noise",), 0)
RULES: dict[str, Rule] = {
    "closed": FORM,
    "quadrature": Quadrature(),
    "conditional": Conditional((0,)),
    "montecarlo": MonteCarlo(),
    "variational": Variational(),
}


def test_rules_say_what_they_are() -> None:
    """(exact, divisible, power_limit, draws), which the kernel asks instead of the class."""
    flags = {name: (r.exact, r.divisible, r.power_limit, r.draws) for name, r in RULES.items()}
    assert flags == {
        "closed": (True, False, False, False),
        "quadrature": (False, True, False, False),
        "conditional": (False, True, False, False),
        "montecarlo": (False, True, False, True),
        "variational": (False, True, True, False),
    }


@pytest.mark.parametrize("name", RULES)
def test_every_rule_knows_from_which_error_on_a_row_is_marked(name: str) -> None:
    rule = RULES[name]
    for size in (1, 2, 3, 7):
        double, single = rule.reported(jnp.float64, size), rule.reported(jnp.float32, size)
        assert (double is None) == (single is None) == rule.exact
        assert double is None or single is None or 0.0 < double <= single


@pytest.mark.parametrize("name", [n for n in RULES if n != "closed"])
def test_integral_rules_take_the_same_arguments(name: str) -> None:
    """Landmarks and a key may be given to each; the answer is a message in the limit of power 0, else moments."""
    rule: Any = RULES[name]
    integral: IntegralRule = rule

    def call(mean: Any, scale: Any, key: Any) -> Any:
        landmarks = Landmarks(jnp.zeros(0), 0)
        return integral(lambda h: -0.5 * (h - 1.0) @ (h - 1.0), mean, scale, landmarks, key)

    out = jax.eval_shape(call, jnp.zeros(2), jnp.eye(2), jax.random.key(0))
    assert isinstance(out, Message if rule.power_limit else Tilted)
    assert (out.drawn is not None) == rule.draws
    assert [a.shape for a in jax.tree.leaves(out)][:4] == [(), (2,), (2, 2), ()]


def test_roots_have_volume_and_messages_any_precision() -> None:
    zero, one = jnp.zeros(2), jnp.eye(2)
    good = Tilted(jnp.asarray(-1.0), zero, one)
    assert bool(good.positive) and good.drawn is None
    for pivot in (0.0, -1.0, jnp.nan):
        assert not bool(good._replace(root=one.at[1, 1].set(pivot)).positive)
    message = Message(jnp.asarray(-1.0), zero, -one)
    assert bool(message.positive) and message.drawn is None
