"""The key of what a model reads beside its arguments: another key once any of it has changed, the same key if not."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from adfpp.model.environment import environment

SCALE = 1.0


def reads_a_global(x: Any) -> Any:
    return SCALE * x


def calls_one_that_does(x: Any) -> Any:
    return reads_a_global(x)


@pytest.mark.parametrize("model", [reads_a_global, calls_one_that_does, lambda x: [SCALE for _ in x]])
def test_a_changed_global_changes_the_key(monkeypatch: pytest.MonkeyPatch, model: Callable[..., Any]) -> None:
    """Also where it is read by another function of the module, or by a function inside of the model."""
    before = environment(model)
    assert environment(model) == before and hash(environment(model)) == hash(before)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert environment(model) != before
    monkeypatch.undo()
    assert environment(model) == before


def closure(value: Any) -> Callable[..., Any]:
    def model(x: Any) -> Any:
        return value * x

    return model


def default(value: Any) -> Callable[..., Any]:
    def model(x: Any, scale: Any = value) -> Any:
        return scale * x

    return model


class Instance:
    """A model that is an object."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, x: Any) -> Any:
        return self.value * x

    def method(self, x: Any) -> Any:
        return self.value * x


@pytest.mark.parametrize(
    "made",
    [
        closure,
        default,
        Instance,
        lambda value: Instance(value).method,
        lambda value: functools.partial(reads_a_global, value),
        lambda value: functools.partial(reads_a_global, x=value),
    ],
    ids=["closure", "default", "object", "method", "partial", "partial by keyword"],
)
def test_the_key_is_of_values(made: Callable[[Any], Any]) -> None:
    """Numbers and small arrays count by their content, wherever the model has them from."""
    assert environment(made(2.0)) == environment(made(2.0)) != environment(made(3.0))
    same, again, other = (environment(made(np.array(v))) for v in ([1.0, 2.0], [1.0, 2.0], [1.0, 3.0]))
    assert same == again != other


def test_large_arrays_count_by_identity() -> None:
    """An array of more than a megabyte is not read for the key."""
    large = np.zeros(200_000)
    assert environment(closure(large)) == environment(closure(large)) != environment(closure(large.copy()))


@pytest.mark.parametrize("kept", [list, tuple, lambda parts: dict(enumerate(parts))], ids=["list", "tuple", "dict"])
def test_the_content_of_containers_counts(kept: Callable[[list[np.ndarray]], Any]) -> None:
    """Also of an array that NumPy prints without its middle, and of a container that contains itself."""
    first, same, other = (np.zeros(2000) for _ in range(3))
    other[1000] = 1.0
    assert environment(closure(kept([first]))) == environment(closure(kept([same])))
    assert environment(closure(kept([first]))) != environment(closure(kept([other])))
    endless: list[Any] = [first]
    endless.append(endless)
    assert environment(closure(endless)) == environment(closure(endless))
