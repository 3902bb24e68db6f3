"""One join for all infos: a row's status does not depend on the order in which its factors are visited."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from adfpp import EP, Moments, MonteCarlo, Quadrature, Status
from adfpp.engine.status import RowInfo, VisitInfo, join, worst_of


def two_factors(x: Any, y: Any = None, z: Any = None) -> None:
    """A row has a factor with an infinite slope, and one on all four numbers that is reached by tempering alone."""
    w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([4]).to_event(1))
    kink = -jnp.sum(jnp.abs(w - 2.5)) / 0.05
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=jnp.cbrt(w[0] - x)), obs=y)
        numpyro.sample("z", dist.Exponential(jnp.exp(kink + 0 * x)), obs=z)


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True], ids=["tempered", "tempered and inaccurate"])
@pytest.mark.filterwarnings("ignore::adfpp.RowsMarked")
def test_sequential_and_parallel_ep_report_the_same_status(strict: bool) -> None:
    """One factor of the row is tempered; the other is accurate enough, or falls short of what is asked."""
    quadrature = Quadrature(report=0.0) if strict else Quadrature()
    moments = Moments(quadrature=quadrature, max_quadrature=1, monte_carlo=MonteCarlo(report=10.0))
    x, y, z = np.array([2.49]), np.array([1]), np.array([1e-12])
    found = {}
    for schedule in ("sequential", "parallel"):
        ep = EP(two_factors, moments=moments, schedule=schedule, max_sweeps=2, tol=1e9)
        found[schedule] = Status(int(ep.run(jax.random.key(0), x, y=y, z=z, progress_bar=False).info.status[0]))
    assert found["sequential"] == found["parallel"] == (Status.INACCURATE if strict else Status.TEMPERED)


def test_codes_are_ordered_by_severity() -> None:
    """What is only counted comes first, then what a run warns of, then refusals; the public idiom for these holds."""
    assert [s.name for s in Status if not s.warned] == ["OK", "TEMPERED", "SATURATED", "PARTIAL"]
    assert [s.name for s in Status if s.warned and not s.refused] == ["INACCURATE", "HELD"]
    refused = ["NOT_FINITE", "OUT_OF_SUPPORT", "IMPROPER", "UNRELIABLE", "ABOVE_ONE"]
    assert [s.name for s in Status if s.refused] == refused
    assert [s.refused for s in Status] == [s >= Status.NOT_FINITE for s in Status]
    assert all(s.advice.startswith("refused") == s.refused for s in Status)


def test_a_row_is_as_bad_as_its_worst_factor() -> None:
    """Sums, the largest error and the worst status; of a refused row nothing but the status is left."""
    status = jnp.array([[Status.TEMPERED, Status.OK], [Status.INACCURATE, Status.NOT_FINITE]])
    info = VisitInfo(
        jnp.array([[-1.0, -1.0], [-2.0, -2.0]]),
        status,
        jnp.array([[0.1, 0.1], [0.3, 0.3]]),
        jnp.array([[1.0, 1.0], [2.0, 2.0]]),
        jnp.array([[1, 1], [1, 0]]),
    )
    joined = join(info)
    assert joined.status.tolist() == [Status.INACCURATE, Status.NOT_FINITE]
    np.testing.assert_allclose(joined.log_z, [-3.0, 0.0])
    np.testing.assert_allclose(joined.error, [0.3, 0.0])
    np.testing.assert_allclose(joined.evidence, [3.0, 0.0])
    assert joined.clamped.tolist() == [2, 0] and joined.clamped.dtype == info.clamped.dtype
    once = join(RowInfo(info.log_z, info.status, info.error))
    assert once.status.tolist() == joined.status.tolist() and once.log_z.tolist() == joined.log_z.tolist()
    assert worst_of(jnp.int32(Status.PARTIAL), Status.INACCURATE) == Status.INACCURATE
