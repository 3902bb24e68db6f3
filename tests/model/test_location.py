"""The user's line that led to an error."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from adfpp.model.location import first_line, raised_at


def error_of(call: Callable[[], object]) -> Exception:
    """The error that a call raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call()
    return caught.value


def test_names_the_expression() -> None:
    """Not the library's line in which the error was raised, and not the whole line of the user's."""
    at = raised_at(error_of(lambda: len([1]) + np.linalg.cholesky(np.ones(3)).sum()))
    assert at.startswith("line ") and at.endswith("of test_location.py: `np.linalg.cholesky(np.ones(3))`")
    assert "`jnp.ones(2) @ jnp.ones(3)`" in raised_at(error_of(lambda: jnp.ones(2) @ jnp.ones(3)))


def test_counts_characters_and_not_bytes() -> None:
    """A line may have Greek letters."""
    σ = "σ"
    assert "`{}[σ + σ]`" in raised_at(error_of(lambda: {}[σ + σ]))


def test_shortens_long_code() -> None:
    """Several lines, or one long line."""

    def long() -> object:
        return {}[
            "several lines",
            1,
        ]

    assert raised_at(error_of(long)).endswith("`return {}[`")
    at = raised_at(
        error_of(lambda: {}["a key of more than eighty characters that nobody would ever want to see in full"])
    )
    assert at.endswith("…`") and len(at) < 120


def test_no_line_of_the_users() -> None:
    """An error that was never raised, or inside of a library alone."""
    assert raised_at(ValueError("new")) == ""
    with pytest.raises(SyntaxError) as caught:
        compile("1 +", "none", "exec")
    assert raised_at(caught.value).startswith("line ")


def test_first_lines() -> None:
    """As sentences; the type where there is no message."""
    assert first_line(ValueError("one\ntwo")) == "one."
    assert first_line(ValueError("One.")) == "One."
    assert first_line(KeyError()) == "KeyError."
