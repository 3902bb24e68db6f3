"""What a run gives back: a pair that knows its posterior and how to run again."""

from typing import Any

import jax
import numpy as np
import pytest

from adfpp.learn.adf import ADFResult
from tests.learn.common import equal


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
