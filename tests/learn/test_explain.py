"""The plan of a model: its latents, factors and arguments as data and as text."""

import jax

import adfpp
from models import heteroscedastic
from tests import models


def test_the_plan_of_a_hierarchy() -> None:
    """Latents with their transforms and priors, a row's factor, the prior's factors, and the arguments."""
    x, y, group = models.rows()
    plan = adfpp.EP(models.groups).explain(x, group, y=y)
    assert [(s.name, s.shape, s.size, s.transform) for s in plan.latents] == [
        ("mu", (), 1, "identity"),
        ("tau", (), 1, "exp"),
        ("a", (models.GROUPS,), models.GROUPS, "identity"),
    ]
    assert plan.latents[0].prior != "prior factors, see below" and plan.latents[2].prior == "prior factors, see below"
    [factor] = plan.factors
    assert (factor.name, factor.count, factor.field_size, factor.rule) == ("y", 1, 1, "Quadrature")
    assert [(p.name, p.count) for p in plan.priors] == [("a", models.GROUPS)]
    assert set(plan.rows) == {"x", "group", "y"} and plan.constants == () and plan.local == ()
    assert plan.family == "full" and plan.size == 2 + models.GROUPS
    text = str(plan)
    for words in ("mu", "tau", "exp", "1-dimensional integral", "prior factors, visited repeatedly", "group"):
        assert words in text


def test_the_plan_of_a_product() -> None:
    """Each latent has a family, and one in its native space has no transform."""
    x, y, _ = models.rows()
    plan = adfpp.ADF(models.signs).explain(x, y=y)
    [sign] = plan.latents
    assert sign.family == "bernoulli" and sign.transform == "native space" and plan.family.startswith("product")
    assert "bernoulli" in str(plan)


def test_the_plan_of_a_location_and_a_scale() -> None:
    """A row with a location and a log scale is Gaussian given the scale: one factor with a field of two numbers."""
    data, _ = heteroscedastic.simulate(jax.random.key(1), 16)
    [factor] = adfpp.ADF(heteroscedastic.model).explain(**data).factors
    assert (factor.count, factor.field_size, factor.rule) == (1, 2, "Conditional")
