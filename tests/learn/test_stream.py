"""A run over a stream: chunks, snapshots, progress, interruption, and what is said of refused rows."""

import warnings
from typing import Any

import jax
import numpy as np
import pytest

import adfpp
from adfpp import ADF, Status


@pytest.mark.slow
def test_run_is_update_in_chunks(learner: Any) -> None:
    """Chunks of any size, a given state to go on from, and info whole, thinned or in totals agree."""
    adf, start, x, y = learner
    whole, info = adf.update(start, x, y=y)
    chunked = adf.run(jax.random.key(0), x, y=y, chunk_size=48, progress_bar=False)
    np.testing.assert_allclose(chunked.state.belief.mean, whole.belief.mean, atol=1e-12)
    np.testing.assert_allclose(chunked.info.log_z, info.log_z, atol=1e-12)
    first = adf.run(jax.random.key(0), x[:120], y=y[:120], progress_bar=False)
    second = adf.run(jax.random.key(1), x[120:], y=y[120:], state=first.state, progress_bar=False)
    np.testing.assert_allclose(second.state.belief.mean, whole.belief.mean, atol=1e-12)
    thinned = adf.run(jax.random.key(0), x, y=y, chunk_size=48, info=7, progress_bar=False)
    np.testing.assert_allclose(thinned.info.log_z, info.log_z[::7], atol=1e-12)
    totals = adf.run(jax.random.key(0), x, y=y, info="totals", progress_bar=False).info
    np.testing.assert_allclose(totals.log_z, np.sum(info.log_z), rtol=1e-12)
    assert totals.counts.tolist() == [200] + [0] * (len(Status) - 1)
    with pytest.raises(ValueError, match="info must be"):
        adf.run(jax.random.key(0), x, y=y, info="some")
    with pytest.raises(ValueError, match="not both"):
        adf.run(jax.random.key(0), x, y=y, state=start, prior=adf.get_posterior(start))


def test_progress_bar_tells_the_score(learner: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The bar counts rows and shows the running one-step-ahead score; it can be switched off."""
    adf, _, x, y = learner
    result = adf.run(jax.random.key(0), x, y=y)
    shown = capsys.readouterr().err
    assert f"log score {result.info.log_z.mean():.3f}" in shown and "200/200" in shown
    adf.run(jax.random.key(0), x, y=y, progress_bar=False)
    assert capsys.readouterr().err == ""


def interrupt(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Ctrl-C in this chunk of the next run, counted from 1."""
    real, calls = ADF._absorb, {"count": 0}

    def fold(self: ADF, *args: Any) -> Any:
        calls["count"] += 1
        if calls["count"] == chunk:
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(ADF, "_absorb", fold)


def test_interrupting_a_run_hands_back_what_was_reached(learner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the third chunk: the state after two, with a warning that says so."""
    adf, start, x, y = learner
    interrupt(monkeypatch, 3)
    with pytest.warns(UserWarning, match="Interrupted after 64 of 200 rows"):
        result = adf.run(jax.random.key(0), x, y=y, chunk_size=32, progress_bar=False)
    monkeypatch.undo()
    expected, info = adf.update(start, x[:64], y=y[:64])
    np.testing.assert_allclose(result.state.belief.mean, expected.belief.mean, atol=1e-12)
    assert int(result.state.rows) == 64
    np.testing.assert_allclose(result.info.log_z, info.log_z, atol=1e-12)


@pytest.mark.parametrize(("every", "chunk"), [(1, None), (32, None), (32, 24), (80, 32), (500, 64)])
def test_snapshots_are_the_beliefs_on_the_way(learner: Any, every: int, chunk: int | None) -> None:
    """After every so many rows and at the end, whatever the chunks; the result is the same as without."""
    adf, start, x, y = learner
    plain = adf.run(jax.random.key(0), x[:96], y=y[:96], progress_bar=False)
    result = adf.run(jax.random.key(0), x[:96], y=y[:96], progress_bar=False, snapshots=every, chunk_size=chunk)
    np.testing.assert_allclose(result.state.belief.mean, plain.state.belief.mean, atol=1e-12)
    np.testing.assert_allclose(result.info.log_z, plain.info.log_z, atol=1e-12)
    rows, mean, sd, log_z, status = result.trajectory
    assert rows.tolist() == sorted({*range(every, 97, every), 96})
    assert mean.shape == sd.shape == (len(rows), 4) and status.tolist() == [0] * len(rows)
    np.testing.assert_allclose(log_z.cumsum(), plain.info.log_z.cumsum()[rows - 1], atol=1e-9)
    for step in {0, len(rows) // 2, len(rows) - 1}:
        belief = adf.update(start, x[: rows[step]], y=y[: rows[step]])[0].belief
        np.testing.assert_allclose(mean[step], belief.mean, atol=1e-12)
        np.testing.assert_allclose(sd[step], np.sqrt(np.diag(belief.scale @ belief.scale.T)), atol=1e-12)
    with pytest.raises(ValueError, match="snapshots must be"):
        adf.run(jax.random.key(0), x, y=y, snapshots=0)


def test_an_interrupted_run_keeps_its_steps(learner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trajectory ends where the run did, and a run without a step has an empty one."""
    adf, _, x, y = learner
    interrupt(monkeypatch, 3)
    with pytest.warns(UserWarning, match="Interrupted after 64 of 200 rows"):
        result = adf.run(jax.random.key(0), x, y=y, snapshots=32, progress_bar=False)
    assert result.trajectory is not None and result.trajectory.rows.tolist() == [32, 64] and result.run.rows == 64
    monkeypatch.undo()
    interrupt(monkeypatch, 1)
    with pytest.warns(UserWarning, match="Interrupted after 0 of 200 rows"):
        nothing = adf.run(jax.random.key(0), x, y=y, snapshots=32, progress_bar=False)
    assert nothing.trajectory is not None and nothing.trajectory.mean.shape == (0, 4)


def test_run_reads_a_memory_map_by_chunks(tmp_path: Any, learner: Any) -> None:
    """A file on disk is a stream like any other."""
    adf, start, x, y = learner
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    result = adf.run(jax.random.key(0), mapped, y=y, chunk_size=64, progress_bar=False)
    np.testing.assert_allclose(result.state.belief.mean, adf.update(start, x, y=y)[0].belief.mean, atol=1e-12)


def test_run_warns_once_and_strict_raises(learner: Any) -> None:
    """Counts and advice in one warning; strict names the first bad row and keeps what was reached."""
    adf, start, x, y = learner
    x, y = x.copy(), y.copy()
    x[[50, 60], 0], y[70] = np.nan, 7
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        adf.run(jax.random.key(0), x, y=y, progress_bar=False, chunk_size=16)
    told = [str(w.message) for w in caught if w.category is adfpp.RowsMarked]
    assert len(told) == 1 and "3 of 200" in told[0] and "2 NOT_FINITE" in told[0] and "mask" in told[0]
    with pytest.raises(adfpp.RowRefused, match="row 50: NOT_FINITE") as refused:
        adf.run(jax.random.key(0), x, y=y, progress_bar=False, chunk_size=16, strict=True)
    assert refused.value.row == 50 and int(refused.value.result.state.rows) == 62
    with pytest.raises(adfpp.RowRefused, match="row 9: OUT_OF_SUPPORT"):
        adf.update(start, x[61:], y=y[61:], strict=True)
    with pytest.raises(adfpp.ModelError, match="no rows|No rows"):
        adf.update(start, x[:0], y=y[:0])
