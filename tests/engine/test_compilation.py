"""How programs are compiled: with options of adfpp's own, but inside other programs with theirs."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import adfpp
from adfpp.engine.compilation import Compiled, run_once
from tests import models

X = np.arange(3.0)


def test_a_program_can_be_called_inside_others(monkeypatch: pytest.MonkeyPatch):
    """JAX accepts options for outermost programs only."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    double = Compiled(lambda tree, empty: 2.0 * tree["a"][0])
    np.testing.assert_array_equal(double({"a": (X,)}, []), 2.0 * X)
    np.testing.assert_array_equal(jax.jit(lambda x: double({"a": (x,)}, None))(X), 2.0 * X)
    np.testing.assert_array_equal(jax.jit(jax.vmap(lambda x: double({"a": [x]}, ())))(X), 2.0 * X)
    np.testing.assert_array_equal(jax.jit(lambda: double({"a": (X,)}, None))(), 2.0 * X)  # no argument is traced
    np.testing.assert_array_equal(jax.vmap(lambda x: double({"a": [x]}, ()))(X), 2.0 * X)
    assert jax.grad(lambda x: double({"a": (x,)}, None))(1.0) == 2.0
    assert double.outermost._cache_size() == 1  # pyright: ignore[reportAttributeAccessIssue]


def test_a_program_that_runs_once_gives_its_value():
    np.testing.assert_array_equal(run_once(lambda x: x + 1.0, X), X + 1.0)


def test_options_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch):
    """The options given to JAX name no option that XLA_FLAGS names."""
    given: list[dict[str, object] | None] = []
    monkeypatch.setattr(jax, "jit", lambda f, compiler_options=None: given.append(compiler_options) or f)
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true")
    run_once(jnp.sin, X)
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=3 --xla_cpu_use_fusion_emitters=true")
    run_once(jnp.sin, X)
    monkeypatch.delenv("XLA_FLAGS")
    Compiled(jnp.sin)
    assert given[:2] == [{"xla_backend_optimization_level": 0}, None]
    options = given[2]
    assert options is not None and options["xla_backend_optimization_level"] == 1 and given[3] is None


@pytest.mark.parametrize("model", [models.logistic, models.unknown_noise])
def test_the_loop_over_rows_is_one_function(model: Callable[..., None]):
    """XLA makes it one only if it contains no library call, no sorting and no scattered write."""
    x, y, _ = models.rows()
    adf = adfpp.ADF(model)
    state = adf.init(jax.random.key(0), x, y=y)
    program = jax.jit(lambda state: adf.update(state, x, y=y)).lower(state).compile().as_text()
    assert program is not None
    entry = program[program.index("ENTRY") :]
    assert " call(" in entry and " while(" not in entry
