"""The schedule as a user meets it: contract, streams, guard, and the traps that peers fell into."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import ndtr
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

import adfpp
from adfpp import ADF, Status
from adfpp.distributions import Probit
from adfpp.learn.adf import ADFResult

TRACES = {"count": 0}


def logistic(x: Any, y: Any = None) -> None:
    """Logistic regression; counts how often it is traced."""
    TRACES["count"] += 1
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 3))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)


def regression(x: Any, y: Any = None, noise: float = 1.0) -> None:
    """One slope, known noise."""
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(w * x, noise), obs=y)


def two_outputs(x: Any, y: Any = None, count: Any = None) -> None:
    """A vector of two independent outputs and a count share their weights: three factors a row."""
    w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1], 2]).to_event(2))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 0.5).to_event(1), obs=y)
        numpyro.sample("count", dist.Poisson(jnp.exp(x @ w[:, 0])), obs=count)


def labels(seed: int, n: int = 200, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """A small classification stream."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, (x @ np.array([1.0, -1.0, 0.5])[:d] + rng.logistic(size=n) > 0).astype(int)


@pytest.fixture(scope="module")
def learner() -> tuple[ADF, Any, np.ndarray, np.ndarray]:
    """One compiled learner for the tests that need no other."""
    x, y = labels(1)
    adf = ADF(logistic)
    return adf, adf.init(jax.random.key(0), x, y=y), x, y


def equal(a: Any, b: Any) -> bool:
    """Bit for bit."""

    def strip(s: Any) -> Any:
        return s._replace(rng_key=jax.random.key_data(s.rng_key))

    return all(np.array_equal(p, q) for p, q in zip(jax.tree.leaves(strip(a)), jax.tree.leaves(strip(b)), strict=True))


# ------------------------------------------------------------------------------------------------ contract


@pytest.mark.parametrize(
    "family",
    ["full", pytest.param("diagonal", marks=pytest.mark.slow), pytest.param("spherical", marks=pytest.mark.slow)],
)
def test_contract_of_every_family(family: str) -> None:
    """State and info are stable pytrees; scan equals loop equals batch; update vmaps over beliefs and rows."""
    x, y = labels(2, 16)
    adf = ADF(logistic, family=family)
    start = adf.init(jax.random.key(0), x, y=y)
    batch, info = adf.update(start, x, y=y)
    assert jax.tree.structure(batch) == jax.tree.structure(start)
    assert [a.dtype for a in jax.tree.leaves(batch)] == [a.dtype for a in jax.tree.leaves(start)]
    assert [a.shape for a in info] == [(16,)] * 3
    assert int(batch.rows) == 16

    loop = start
    for i in range(16):
        loop, _ = adf.update(loop, x[i : i + 1], y=y[i : i + 1])

    def step(state: Any, row: Any) -> Any:
        state, one = adf.update(state, row[0][None], y=row[1][None])
        return state, one.log_z[0]

    scanned, log_z = jax.jit(lambda s: jax.lax.scan(step, s, (jnp.asarray(x), jnp.asarray(y))))(start)
    for other in (loop, scanned):
        np.testing.assert_allclose(other.belief.mean, batch.belief.mean, atol=1e-12)
        np.testing.assert_allclose(other.belief.scale, batch.belief.scale, atol=1e-12)
    np.testing.assert_allclose(log_z, info.log_z, atol=1e-12)

    xs, ys = x.reshape(2, 8, 3), y.reshape(2, 8)
    both, _ = jax.vmap(lambda a, b: adf.update(start, a, y=b))(jnp.asarray(xs), jnp.asarray(ys))
    for i in range(2):
        one, _ = adf.update(start, xs[i], y=ys[i])
        np.testing.assert_allclose(both.belief.mean[i], one.belief.mean, atol=1e-12)


def test_float32_by_default(float32: None) -> None:
    """Without x64 everything is float32 and close to the float64 answer; nothing is promoted."""
    x, y = labels(3, 128)
    adf = ADF(logistic)
    state, info = adf.update(adf.init(jax.random.key(0), x, y=y), x, y=y)
    assert state.belief.mean.dtype == info.log_z.dtype == jnp.float32
    with jax.enable_x64(True):
        wide = ADF(logistic)
        exact, exact_info = wide.update(wide.init(jax.random.key(0), x, y=y), x, y=y)
    np.testing.assert_allclose(np.asarray(state.belief.mean), np.asarray(exact.belief.mean), atol=2e-4)
    np.testing.assert_allclose(np.asarray(info.log_z).sum(), np.asarray(exact_info.log_z).sum(), rtol=1e-5)


@pytest.mark.slow
def test_random_batch_lengths_compile_at_most_a_dozen_times() -> None:
    """A thousand batches of random length: the model is traced for the reader and for a few padded lengths."""
    rng = np.random.default_rng(4)
    x, y = labels(4, 1000)
    adf = ADF(logistic)
    state = adf.init(jax.random.key(0), x, y=y)
    folds = {"count": 0}

    def listen(event: str, duration_secs: float, **kwargs: Any) -> None:
        folds["count"] += event.endswith("backend_compile_duration")

    jax.monitoring.register_event_duration_secs_listener(listen)
    before = TRACES["count"]
    try:
        total = 0
        for n in rng.integers(1, 1001, size=1000):
            state, info = adf.update(state, x[:n], y=y[:n])
            assert info.log_z.shape == (n,)
            total += int(n)
    finally:
        jax.monitoring.clear_event_listeners()
    assert int(state.rows) == total
    assert 0 < folds["count"] <= 12
    assert TRACES["count"] == before  # the model itself is not run again: its trace is


def test_call_forms_share_one_program(learner: Any) -> None:
    """Positional or by keyword, NumPy or JAX: the same result and nothing read again."""
    adf, start, x, y = learner
    reference, _ = adf.update(start, x[:8], y=y[:8])
    before = TRACES["count"]
    for state in (
        adf.update(start, x[:8], y[:8])[0],
        adf.update(start, y=y[:8], x=x[:8])[0],
        adf.update(start, jnp.asarray(x[:8]), y=jnp.asarray(y[:8]))[0],
    ):
        assert equal(state, reference)
    assert TRACES["count"] == before


# ------------------------------------------------------------------------------------------------ streams


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


def test_shuffled_run_is_the_same_rows_in_another_order(learner: Any) -> None:
    """Shuffling is by the key; info stays in the order of the data; sorted labels stop mattering."""
    adf, _, x, y = learner
    order = np.argsort(y, kind="stable")
    shuffled = adf.run(jax.random.key(5), x, y=y, shuffle=True, progress_bar=False)
    again = adf.run(jax.random.key(5), x, y=y, shuffle=True, progress_bar=False)
    assert equal(shuffled.state, again.state)
    assert not np.allclose(
        shuffled.state.belief.mean, adf.run(jax.random.key(5), x, y=y, progress_bar=False).state.belief.mean
    )
    bad = y.copy()
    bad[17] = 3
    with pytest.warns(adfpp.RowsMarked, match="1 OUT_OF_SUPPORT"):
        told = adf.run(jax.random.key(5), x, y=bad, shuffle=True, progress_bar=False, chunk_size=32)
    assert np.flatnonzero(told.info.status).tolist() == [17]
    ordered = adf.run(jax.random.key(5), x[order], y=y[order], progress_bar=False)
    mixed = adf.run(jax.random.key(5), x[order], y=y[order], shuffle=True, progress_bar=False)
    distance = [np.abs(r.state.belief.mean - shuffled.state.belief.mean).max() for r in (ordered, mixed)]
    assert distance[1] < 0.5 * distance[0]


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


def test_a_result_remembers_its_run(learner: Any) -> None:
    """It knows its posterior and how to run again, in the same order, from the same start."""
    adf, start, x, y = learner
    first = adf.run(jax.random.key(7), x[:96], y=y[:96], shuffle=True, progress_bar=False)
    assert first.trajectory is None and first.posterior.belief is first.state.belief
    again = first.again(x[:96], y=y[:96], snapshots=32)
    np.testing.assert_allclose(again.state.belief.mean, first.state.belief.mean, atol=1e-12)
    np.testing.assert_allclose(again.info.log_z, first.info.log_z, atol=1e-12)
    assert again.trajectory.rows.tolist() == [32, 64, 96]
    second = adf.run(jax.random.key(8), x[96:192], y=y[96:192], state=first.state, progress_bar=False)
    on = second.again(x[96:192], y=y[96:192])
    assert equal(on.state, second.state)
    begun = adf.run(jax.random.key(8), x[96:192], y=y[96:192], prior=first.posterior, progress_bar=False)
    for run in (second.run, begun.run):
        np.testing.assert_allclose(run.start.belief.mean, first.state.belief.mean, atol=1e-12)
    assert first.run.start is None and first.run.rows == 96


def test_a_result_is_a_pair_to_everybody_else(learner: Any) -> None:
    """It unpacks and maps as the two fields; what lost its run says so and how to go on."""
    adf, _, x, y = learner
    result = adf.run(jax.random.key(0), x[:96], y=y[:96], progress_bar=False, snapshots=32)
    state, info = result
    assert state is result.state and info is result.info and len(result) == 2 and result[1] is info
    leaves, structure = jax.tree.flatten(result)
    assert len(leaves) == len(jax.tree.leaves((state, info)))
    for mapped in (jax.tree.unflatten(structure, leaves), jax.tree.map(lambda a: a, result)):
        assert type(mapped) is ADFResult
        np.testing.assert_array_equal(mapped.state.belief.mean, result.state.belief.mean)
        for lost in (lambda r: r.posterior, lambda r: r.trajectory, lambda r: r.again(x, y=y)):
            with pytest.raises(ValueError, match=r"to_arviz\(adf.get_posterior\(result\)"):
                lost(mapped)
        adf.get_posterior(mapped)
    assert result.trajectory.rows.tolist() == [32, 64, 96]


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


# ------------------------------------------------------------------------------------------------ guard


@pytest.mark.parametrize("family", ["full", "diagonal", "spherical"])
@pytest.mark.parametrize(
    ("where", "value", "status"),
    [("x", np.nan, Status.NOT_FINITE), ("x", -np.inf, Status.NOT_FINITE), ("y", 2, Status.OUT_OF_SUPPORT)],
)
def test_bad_rows_leave_the_state_bit_for_bit(family: str, where: str, value: float, status: Status) -> None:
    """A refused row is coded; the state is untouched, alone or among good rows."""
    x, y = labels(6, 8)
    adf = ADF(logistic, family=family)
    start, _ = adf.update(adf.init(jax.random.key(0), x, y=y), x, y=y)
    bad_x, bad_y = x.copy(), y.copy()
    if where == "x":
        bad_x[3, 1] = value
    else:
        bad_y[3] = value
    alone, info = adf.update(start, bad_x[3:4], y=bad_y[3:4])
    assert equal(alone, start)
    assert int(info.status[0]) == status and float(info.log_z[0]) == 0.0
    among, info = adf.update(start, bad_x, y=bad_y)
    without, _ = adf.update(start, np.delete(x, 3, 0), y=np.delete(y, 3))
    assert np.asarray(info.status).tolist() == [0, 0, 0, status, 0, 0, 0, 0]
    np.testing.assert_allclose(among.belief.mean, without.belief.mean, atol=1e-14)
    assert int(among.rows) == int(without.rows) == 15


@pytest.mark.slow
def test_a_row_is_absorbed_whole_or_not_at_all() -> None:
    """Three factors a row, the last one out of support: the first two are taken back."""
    rng = np.random.default_rng(7)
    x, y, count = rng.normal(size=(4, 3)), rng.normal(size=(4, 2)), np.array([1, 0, -1, 2])
    adf = ADF(two_outputs)
    start = adf.init(jax.random.key(0), x, y=y, count=np.abs(count))
    state, info = adf.update(start, x[2:3], y=y[2:3], count=count[2:3])
    assert equal(state, start) and int(info.status[0]) == Status.OUT_OF_SUPPORT
    y[1, 0] = np.nan
    state, info = adf.update(start, x, y=y, count=count)
    assert np.asarray(info.status).tolist() == [0, Status.NOT_FINITE, Status.OUT_OF_SUPPORT, 0]
    good, _ = adf.update(start, x[[0, 3]], y=y[[0, 3]], count=count[[0, 3]])
    np.testing.assert_allclose(state.belief.mean, good.belief.mean, atol=1e-14)


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


def test_surprising_rows_keep_their_evidence() -> None:
    """A row 40 sd away: its log Z is in logs, not floored, and it moves the belief as it should (trap 6)."""

    def model(x: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", Probit(w * x + 40.0, 0.1), obs=y)

    x, y = np.ones(2), np.array([0, 1])
    adf = ADF(model)
    state, info = adf.update(adf.init(jax.random.key(0), x, y=y), x[:1], y=y[:1])
    z = -40.0 / np.sqrt(1.01)
    np.testing.assert_allclose(info.log_z[0], norm.logcdf(z), rtol=1e-12)
    shift = -np.exp(norm.logpdf(z) - norm.logcdf(z)) / np.sqrt(1.01)
    np.testing.assert_allclose(state.belief.mean[0], shift, rtol=1e-10)


# ------------------------------------------------------------------------------------------------ traps


def test_a_row_is_counted_once() -> None:
    """Linear-Gaussian: one row of precision 1 on a prior of precision 1 leaves variance exactly a half (trap 1)."""
    adf = ADF(regression)
    x, y = np.ones(1), np.ones(1)
    state, _ = adf.update(adf.init(jax.random.key(0), np.ones(2), y=np.ones(2)), x, y=y)
    np.testing.assert_allclose(state.belief.scale**2, [[0.5]], rtol=1e-14)
    np.testing.assert_allclose(state.belief.mean, [0.5], rtol=1e-14)


def test_unseen_directions_keep_their_prior() -> None:
    """One row in five dimensions leaves the other four as they were, at full rank (trap 2)."""
    x, y = np.zeros((2, 5)), np.array([1, 0])
    x[:, 0] = 1.0
    adf = ADF(logistic)
    state, _ = adf.update(adf.init(jax.random.key(0), x, y=y), x[:1], y=y[:1])
    cov = np.asarray(state.belief.scale @ state.belief.scale.T)
    np.testing.assert_allclose(cov[1:5, 1:5], np.eye(4), atol=1e-14)
    assert np.linalg.matrix_rank(cov) == 6


def test_evidence_of_discrete_data_sums_to_one() -> None:
    """Σ_y Z(y) = 1 for a binary and a count likelihood (trap 3)."""
    x, y = labels(8, 20)
    adf = ADF(logistic)
    state, _ = adf.update(adf.init(jax.random.key(0), x, y=y), x, y=y)
    z = [float(np.exp(adf.update(state, x[:1], y=np.array([v]))[1].log_z[0])) for v in (0, 1)]
    np.testing.assert_allclose(sum(z), 1.0, atol=1e-8)

    def counts(x: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0, 0.5))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Poisson(jnp.exp(w * x)), obs=y)

    poisson = ADF(counts)
    many = np.arange(80)
    start = poisson.init(jax.random.key(0), np.ones(80), y=many)
    total = sum(float(np.exp(poisson.update(start, np.ones(1), y=many[k : k + 1])[1].log_z[0])) for k in many)
    np.testing.assert_allclose(total, 1.0, atol=1e-6)


def test_precision_and_covariance_agree_after_forgetting() -> None:
    """sd is an sd: summary, sample and the state tell one story after discounting (trap 5)."""
    x, y = labels(9, 64)
    adf = ADF(logistic, dynamics=adfpp.Discount(0.95))
    post = adf.get_posterior(adf.run(jax.random.key(0), x, y=y, progress_bar=False).state)
    draws = post.sample(jax.random.key(1), (20_000,))
    np.testing.assert_allclose(np.std(draws["w"], 0), post.sd()["w"], rtol=0.03)
    np.testing.assert_allclose(post.summary().loc["b", "sd"], float(post.sd()["b"]), rtol=1e-12)
    distribution: Any = post.distribution
    cov = np.asarray(distribution.covariance_matrix)
    np.testing.assert_allclose(np.sqrt(np.diagonal(cov))[:3], post.sd()["w"], rtol=1e-10)


@pytest.mark.slow
def test_clipped_probit_is_why_there_is_a_probit() -> None:
    """Bernoulli(probs=ndtr(h)) loses mass in the tail; Probit agrees with the integral there (trap 12)."""
    h = jnp.asarray(-12.0)
    assert float(Probit(h).log_prob(1)) == pytest.approx(norm.logcdf(-12.0), rel=1e-12)
    assert float(dist.Bernoulli(probs=ndtr(-h)).log_prob(0)) - norm.logcdf(-12.0) > 10
    assert float(Probit(-h).log_prob(0)) == pytest.approx(norm.logcdf(-12.0), rel=1e-12)
    assert np.isfinite(float(jax.grad(jax.grad(lambda v: Probit(v).log_prob(1)))(h)))


def test_vague_prior_collinear_columns_in_float32(float32: None) -> None:
    """Prior sd 100, columns equal to 1e-3: float32 answers within a fifth of an sd of float64 (trap 13)."""

    def model(x: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0, 100).expand([x.shape[-1]]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)

    rng = np.random.default_rng(10)
    base = rng.normal(size=(500, 1))
    x = np.concatenate([base, base + 1e-3 * rng.normal(size=(500, 2))], 1)
    y = (base[:, 0] + rng.logistic(size=500) > 0).astype(int)
    x = x.astype(np.float32)
    narrow = ADF(model)
    state, info = narrow.update(narrow.init(jax.random.key(0), x, y=y), x, y=y)
    assert (np.asarray(info.status) < Status.NOT_FINITE).all()
    with jax.enable_x64(True):
        wide = ADF(model)
        exact, _ = wide.update(wide.init(jax.random.key(0), x.astype(float), y=y), x.astype(float), y=y)
    sd = np.linalg.norm(np.asarray(exact.belief.scale), axis=1)
    assert (np.abs(np.asarray(state.belief.mean) - np.asarray(exact.belief.mean)) < 0.2 * sd).all()
    assert (np.abs(np.linalg.norm(np.asarray(state.belief.scale), axis=1) / sd - 1) < 0.1).all()


# ------------------------------------------------------------------------------------------------ any likelihood


def test_first_row_is_the_exact_tilt() -> None:
    """With one latent, one row of ADF is moment matching: log Z, mean and variance against quadrature."""

    def model(x: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0.5, 2))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.StudentT(3.0, w * x, 0.4), obs=y)

    x, y = np.array([1.5, 1.0]), np.array([4.0, 1.0])
    adf = ADF(model)
    state, info = adf.update(adf.init(jax.random.key(0), x, y=y), x[:1], y=y[:1])
    from scipy.stats import t

    def f(w: float, p: int) -> Any:
        return w**p * norm.pdf(w, 0.5, 2) * t.pdf((4.0 - 1.5 * w) / 0.4, 3) / 0.4

    z, first, second = (quad(f, -20, 20, args=(p,), points=[0.5, 8 / 3], limit=400, epsabs=1e-14)[0] for p in range(3))
    np.testing.assert_allclose(info.log_z[0], np.log(z), atol=1e-7)
    np.testing.assert_allclose(state.belief.mean[0], first / z, atol=1e-7)
    np.testing.assert_allclose(state.belief.scale[0, 0] ** 2, second / z - (first / z) ** 2, rtol=1e-6)


@pytest.mark.slow
def test_large_field_goes_to_monte_carlo() -> None:
    """A tiny network: its field is too large for quadrature, it says so, learns, and repeats bit for bit."""

    def net(x: Any, y: Any = None) -> None:
        a = numpyro.sample("a", dist.Normal(0, 1).expand([x.shape[-1], 3]).to_event(2))
        c = numpyro.sample("c", dist.Normal(0, 1).expand([3]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(jnp.tanh(x @ a) @ c, 0.2), obs=y)

    rng = np.random.default_rng(11)
    x = rng.normal(size=(64, 2))
    y = np.tanh(x[:, 0]) - np.tanh(x[:, 1]) + 0.2 * rng.normal(size=64)
    adf = ADF(net)
    plan = adf.explain(x, y=y).factors[0]
    assert plan.field_size == 6 and plan.rule == "MonteCarlo"
    start = adf.init(jax.random.key(0), x, y=y)
    state, info = adf.update(start, x, y=y)
    again, _ = adf.update(start, x, y=y)
    assert equal(state, again)
    assert not (np.asarray(info.status) >= Status.NOT_FINITE).any()
    assert np.mean(info.log_z[-16:]) > np.mean(info.log_z[:16])


# --------------------------------------------------------------------------------- as others use it


@pytest.mark.slow
def test_any_length_inside_jit() -> None:
    """A traced batch whose length no block divides is folded as an eager one is; so is one with a traced state only."""
    rng = np.random.default_rng(12)
    x, y = rng.normal(size=(100, 120)), rng.integers(0, 2, 100)
    adf = ADF(logistic)
    start = adf.init(jax.random.key(0), x, y=y)
    eager, info = adf.update(start, x, y=y)
    for function, arguments in (
        (lambda s, a, b: adf.update(s, a, y=b), (start, x, y)),
        (lambda s: adf.update(s, x, y=y), (start,)),
    ):
        traced, traced_info = jax.jit(function)(*arguments)
        np.testing.assert_allclose(traced.belief.mean, eager.belief.mean, atol=1e-12)
        np.testing.assert_allclose(traced_info.log_z, info.log_z, atol=1e-12)


@pytest.mark.parametrize("x64", [False, True])
def test_rows_of_zeros_are_rows(x64: bool) -> None:
    """A row that says nothing about θ is absorbed: its evidence counts, the belief stays."""

    def model(x: Any, offset: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Poisson(jnp.exp(x @ w + offset)), obs=y)

    with jax.enable_x64(x64):
        x, offset, y = np.zeros((4, 2)), np.full(4, 0.5), np.array([0, 1, 2, 3])
        x[3] = 1.0
        adf = ADF(model)
        start = adf.init(jax.random.key(0), x, offset, y=y)
        state, info = adf.update(start, x[:3], offset[:3], y=y[:3])
        assert np.asarray(info.status).tolist() == [0, 0, 0]
        expected = y[:3] * 0.5 - np.exp(0.5) - np.log([1, 1, 2])
        np.testing.assert_allclose(np.asarray(info.log_z), expected, rtol=1e-5)
        np.testing.assert_allclose(np.asarray(state.belief.scale), np.eye(2), rtol=1e-6, atol=1e-7)


def test_a_state_of_another_model_is_refused() -> None:
    """Neither another number of columns nor another support may go on with a state; explaining one is harmless."""
    x, y = labels(13, 16)
    adf = ADF(logistic)
    state, _ = adf.update(adf.init(jax.random.key(0), x, y=y), x, y=y)
    adf.explain(x[:, :2], y=y)
    assert adf.get_posterior(state).mean()["w"].shape == (3,)
    for call in (adf.update, lambda s, *a, **k: adf.run(jax.random.key(0), *a, state=s, progress_bar=False, **k)):
        with pytest.raises(adfpp.ModelError, match="belongs to another"):
            call(state, x[:, :2], y=y)

    def bounded(x: Any, upper: float, y: Any = None) -> None:
        p = numpyro.sample("p", dist.Uniform(0, upper))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(p * x, 1.0), obs=y)

    other = ADF(bounded)
    begun = other.init(jax.random.key(0), x[:, 0], 1.0, y=x[:, 1])
    with pytest.raises(adfpp.ModelError, match="bounds"):
        other.update(begun, x[:, 0], 10.0, y=x[:, 1])
    np.testing.assert_allclose(other.get_posterior(begun).mean()["p"], 0.5, atol=1e-6)


def test_gaps_without_dynamics_are_refused(learner: Any) -> None:
    """``dt`` would be ignored."""
    adf, start, x, y = learner
    with pytest.raises(ValueError, match="dynamics"):
        adf.update(start, x, y=y, dt=np.ones(len(y)))


def test_elements_that_do_not_depend_on_a_latent_site_count_into_the_evidence() -> None:
    """A site of two elements with nothing to learn from, beside one with something."""

    def model(x: Any, y: Any = None) -> None:
        w: Any = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("z", dist.Normal(0.5, 2.0).expand([2]).to_event(1), obs=x)
            numpyro.sample("y", dist.Normal(w * x[:, 0], 1.0), obs=y)

    x = np.random.default_rng(0).normal(size=(5, 2))
    y = x[:, 0] + 0.1
    adf = adfpp.ADF(model)
    state, info = adf.update(adf.init(jax.random.key(0), x, y=y), x, y=y)
    precision = 1.0 + x[:, 0] @ x[:, 0]
    assert float(state.belief.mean[0]) == pytest.approx(x[:, 0] @ y / precision, rel=1e-10)
    total = np.eye(5) + np.outer(x[:, 0], x[:, 0])
    normal: Any = multivariate_normal
    expected = norm.logpdf(x, 0.5, 2.0).sum() + normal.logpdf(y, np.zeros(5), total)
    assert float(info.log_z.sum()) == pytest.approx(expected, rel=1e-10)
