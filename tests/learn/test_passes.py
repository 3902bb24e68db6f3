"""The passes over time against a textbook Rauch-Tung-Striebel smoother."""

import jax
import numpy as np
import pytest

from adfpp import RowsMarked, Status
from adfpp.learn.smoothing import smooth
from tests.learn.state_space import (
    MOVES,
    PRIOR_MEAN,
    ROWS,
    covariances,
    fade,
    learner,
    rauch_tung_striebel,
    stream,
    walk,
)


@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.slow) if k == "returning" else k for k in MOVES])
def test_it_is_rauch_tung_striebel(kind: str) -> None:
    """Smoothed and filtered moments and the evidence of a linear Gaussian model with irregular gaps, to 1e-8.

    The third sweep checks that sites in the place of the rows, and EP's evidence from them, change nothing: one and two
    sweeps are exact, so the run ends by itself.
    """
    x, y, gaps = stream(1)
    means, spreads, filtered, log_z = rauch_tung_striebel(x, y, gaps, MOVES[kind][1])
    adf = learner(kind)
    for sweeps in (1, 9):
        got = smooth(adf, x, y=y, dt=gaps, sweeps=sweeps, progress_bar=False)
        assert got.mean.shape == got.sd.shape == (ROWS, 3)
        np.testing.assert_allclose(got.mean, means, atol=1e-8)
        np.testing.assert_allclose(covariances(got), spreads, atol=1e-8)
        np.testing.assert_allclose(got.sd, np.sqrt(np.diagonal(spreads, axis1=1, axis2=2)), atol=1e-8)
        np.testing.assert_allclose(got.filtered_mean, filtered, atol=1e-8)
        np.testing.assert_allclose(got.log_evidence, log_z, rtol=1e-8)
        assert (got.status == Status.OK).all()
        assert got.converged == (sweeps > 1) and len(got.steps) == min(sweeps, 2)


def test_missing_rows_are_bridged() -> None:
    """A refused row's belief is what the others say of its time, at the ends of the stream as within it."""
    x, y, gaps = stream(2)
    y[[4, 5, 11, ROWS - 1]] = np.nan
    means, spreads, filtered, log_z = rauch_tung_striebel(x, y, gaps, fade)
    adf = learner("returning")
    for sweeps in (1, 9):
        with pytest.warns(RowsMarked, match="4 of 24 rows: 4 NOT_FINITE"):
            got = smooth(adf, x, y=y, dt=gaps, sweeps=sweeps, progress_bar=False)
        np.testing.assert_allclose(got.mean, means, atol=1e-8)
        np.testing.assert_allclose(covariances(got), spreads, atol=1e-8)
        np.testing.assert_allclose(got.filtered_mean, filtered, atol=1e-8)
        np.testing.assert_allclose(got.log_evidence, log_z, rtol=1e-8)
        assert list(np.flatnonzero(got.status == Status.NOT_FINITE)) == [4, 5, 11, ROWS - 1]


def test_rows_before_the_first_are_at_its_time() -> None:
    """There is no move before the first row that is absorbed, as in a run of ADF."""
    x, y, gaps = stream(2)
    y[:2] = np.nan
    adf = learner("scalar")
    with pytest.warns(RowsMarked):
        got = smooth(adf, x, y=y, dt=gaps, progress_bar=False)
        run = adf.run(jax.random.key(0), x, y=y, dt=gaps, progress_bar=False)
    np.testing.assert_allclose(got.mean[-1], run.state.belief.mean, atol=1e-12)
    np.testing.assert_allclose(got.mean[:2], got.mean[[2, 2]], atol=1e-12)
    np.testing.assert_allclose(got.filtered_mean[1], PRIOR_MEAN, atol=1e-12)


@pytest.mark.slow
def test_one_row() -> None:
    """Its smoothed belief is its filtered one, with more sweeps too."""
    x, y, _ = stream(3)
    adf = learner("scalar")
    for sweeps in (1, 3):
        got = smooth(adf, x[:1], y=y[:1], sweeps=sweeps, progress_bar=False)
        means, spreads, _, log_z = rauch_tung_striebel(x[:1], y[:1], np.ones(1), walk(np.eye(3)))
        np.testing.assert_allclose(got.mean, means, atol=1e-10)
        np.testing.assert_allclose(covariances(got), spreads, atol=1e-10)
        np.testing.assert_allclose(got.log_evidence, log_z, rtol=1e-10)


@pytest.mark.slow
def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are passed over in padded chunks when they are many."""
    x, y, gaps = stream(5)
    adf = learner("returning")
    whole = smooth(adf, x, y=y, dt=gaps, sweeps=2, progress_bar=False)
    monkeypatch.setattr("adfpp.learn.passes.suitable_chunk", lambda rows, total: 16)
    parts = smooth(adf, x, y=y, dt=gaps, sweeps=2, progress_bar=False)
    assert whole.converged and parts.converged
    np.testing.assert_allclose(parts.mean, whole.mean, atol=1e-12)
    np.testing.assert_allclose(parts.sd, whole.sd, atol=1e-12)
    np.testing.assert_allclose(parts.log_evidence, whole.log_evidence, rtol=1e-12)
