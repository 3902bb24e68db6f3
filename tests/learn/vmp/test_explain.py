"""The plan of a model."""

import pytest

import adfpp
from tests.learn.vmp import models


@pytest.mark.slow
def test_plan_names_parts_blocks_and_residuals() -> None:
    plan = adfpp.VMP(models.factor_analysis).explain(models.factors())
    assert plan.conjugate and max(p.residual for p in plan.parts) < 1e-8
    assert {p.latents: (p.family, p.blocks, p.numbers) for p in plan.parts} == {
        ("alpha",): ("gamma", 2, 1),
        ("w", "mu"): ("blocks", 4, 3),
        ("tau",): ("gamma", 4, 1),
    }
    assert "one for each row" in str(plan) and "z" in str(plan)
