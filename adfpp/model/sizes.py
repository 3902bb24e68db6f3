"""Sizes that a model computes from the values of its data, such as a number of groups, ``len(np.unique(group))``.

adfpp runs a model with one row whose values are unknown, so that it cannot count groups there. If a model fails for
this reason, it is first run with all the data of the call. ``recorded`` writes down each size that this run reads out
of its data: the results of NumPy functions such as ``np.unique`` and ``np.max``, and whole numbers. The result is a
``SizedModel``, which gives the same answers, in the same order, whatever rows it is called with. Samplers of NumPyro
read these sizes from all data, too.

The arguments of such a run are ``_Known`` arrays, which any function of JAX takes. They belong to a ``_Trace``, which
passes all operations on, and keeps track of the numbers that depend on nothing but data.
"""

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.core import Trace, Tracer
from jax.extend.core import set_current_trace, take_current_trace
from numpyro.primitives import Messenger
from typing_extensions import override

from adfpp.model.arguments import Model, ModelError, ValueNeeded, is_array, signature_of
from adfpp.model.reference import model_name

# NumPy functions whose results do not depend on the order of the rows, and which count groups or find the largest code
_COUNTING = frozenset(["unique", "max", "amax", "min", "amin", "bincount", "ptp"])
_BY_ROW = frozenset(["return_index", "return_inverse", "out"])  # options that give a result for each row

Answer = tuple[str, Any]


class SizedModel:
    """A model that takes its sizes from a list of answers, and not from the values of its arguments.

    Args:
        model: The user's model.
        answers: The question and the answer, for each value that the model reads out of its data, in order.
    """

    def __init__(self, model: Model, answers: Sequence[Answer]) -> None:
        functools.update_wrapper(self, model)
        self.model, self.answers = model, tuple(answers)
        self.__qualname__, self.__signature__ = model_name(model), signature_of(model)

    def __call__(self, *args: object, **kwargs: object) -> None:
        """Runs the model with these answers."""
        _run(self.model, args, kwargs, _Replayed(self.answers))

    def __reduce__(self) -> tuple[object, ...]:
        return SizedModel, (self.model, self.answers)

    def agrees(self, arguments: Mapping[str, object]) -> bool:
        """Whether the model reads the same sizes out of other data. Data without values agrees."""
        if not _has_values(arguments):
            return True
        return recorded(self.model, arguments).digest == self.digest

    @cached_property
    def digest(self) -> str:
        """A short text that differs for other answers."""
        text = repr(
            [(question, np.asarray(part).tolist()) for question, a in self.answers for part in jax.tree.leaves(a)]
        )
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @property
    def in_words(self) -> str:
        """The answers, for messages and plans."""
        return ", ".join(f"{question} = {_short(answer)}" for question, answer in self.answers)


def with_sizes(model: Model, arguments: Mapping[str, object], error: ValueNeeded) -> SizedModel:
    """A model with the sizes that it reads out of the data of a call.

    Args:
        model: The model.
        arguments: The arguments of the call.
        error: The refusal of the model as it is, which is raised if no sizes can be read.
    """
    if isinstance(model, SizedModel) or not _has_values(arguments):
        raise error
    try:
        sized = recorded(model, arguments)
    except ModelError:
        raise
    except Exception:  # whatever the model does with its values, it cannot do with one row
        raise error from None
    if not sized.answers:
        raise error
    return sized


def recorded(model: Model, arguments: Mapping[str, object]) -> SizedModel:
    """Runs a model with values, and writes down the sizes that it reads out of them."""
    from adfpp.model.visit import visit  # which runs models of this class, too

    book = _Recorded()

    def watched(*args: object, **kwargs: object) -> None:
        _run(model, args, kwargs, book)

    vars(watched)["__signature__"] = signature_of(model)
    visit(watched, arguments)
    return SizedModel(model, book.answers)


def _has_values(arguments: Mapping[str, object]) -> bool:
    leaves = [leaf for leaf in jax.tree.leaves(dict(arguments)) if is_array(leaf)]
    return not any(isinstance(leaf, jax.ShapeDtypeStruct | Tracer) for leaf in leaves)


def _short(answer: object) -> str:
    return f"{answer.size} values" if isinstance(answer, np.ndarray) else str(answer)


# ------------------------------------------------------------------------------------------ questions and answers


class _Recorded:
    """Answers questions by computing, and keeps the answers."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def ask(self, question: str, compute: Callable[[], Any]) -> Any:
        answer = compute()
        self.answers.append((question, answer))
        return answer


class _Replayed:
    """Answers the same questions again."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.left = list(answers)

    def ask(self, question: str, compute: Callable[[], Any]) -> Any:
        del compute
        if not self.left or self.left[0][0] != question:
            raise ModelError(
                f"The model asks for {question} of its data with one row, but not in this order with all of its rows: "
                "it reads values of its data in another way when the number of rows changes. Compute such numbers "
                "outside, and pass them as Python numbers, e.g. model(x, group, n_groups=8)."
            )
        return self.left.pop(0)[1]


# ------------------------------------------------------------------------------------------ arrays that can be asked


class _Known(Tracer):
    """An array that depends on nothing but data, so that its values are known while sizes are recorded."""

    __slots__ = ("value",)
    aval = property(lambda self: jax.typeof(self.value))  # pyright: ignore[reportAssignmentType]

    def __init__(self, trace: "_Trace", value: Any) -> None:
        self._trace, self._line_info, self.value = trace, None, value

    def _ask(self, question: str, kind: type) -> Any:
        return self._trace.book.ask(question, lambda: kind(self.value))

    @override
    def __int__(self) -> int:
        return self._ask("int", int) if self._is_whole_number() else super().__int__()

    @override
    def __index__(self) -> int:
        return self._ask("int", int) if self._is_whole_number() else super().__index__()

    def max(self, *args: Any, **kwargs: Any) -> Any:
        """The largest value: a number for whole numbers, as NumPy gives it; else an array of JAX."""
        return np.max(self, *args, **kwargs) if self._has_codes() else jax.numpy.max(self, *args, **kwargs)

    def min(self, *args: Any, **kwargs: Any) -> Any:
        """The smallest value, likewise."""
        return np.min(self, *args, **kwargs) if self._has_codes() else jax.numpy.min(self, *args, **kwargs)

    def _is_whole_number(self) -> bool:
        return self.shape == () and self._has_codes()

    def _has_codes(self) -> bool:
        return bool(np.issubdtype(self.dtype, np.integer))

    def __array_function__(self, function: Any, types: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Answers the functions of NumPy that count; all others see an array of JAX."""
        del types
        others = jax.tree.leaves((args[1:], dict(kwargs)))
        counts = function.__name__ in _COUNTING and not _BY_ROW & {k for k, v in kwargs.items() if v is not None}
        if not counts or args[:1] == () or args[0] is not self or any(isinstance(a, Tracer) for a in others):
            return function._implementation(*args, **kwargs)
        return self._trace.book.ask(
            f"np.{function.__name__}", lambda: function(np.asarray(self.value), *args[1:], **kwargs)
        )


class _Trace(Trace):
    """Passes operations on to the trace around it, and marks the results that depend on nothing but data.

    Args:
        parent: The trace around it.
        book: Answers questions.
    """

    __slots__ = ("book", "parent")

    def __init__(self, parent: Any, book: _Recorded | _Replayed) -> None:
        super().__init__()
        self.parent, self.book = parent, book

    def plain(self, value: Any) -> Any:
        """The array behind a value, as the trace around this one knows it."""
        return value.value if isinstance(value, _Known) and value._trace is self else value

    def _marked(self, given: Sequence[Any], out: Any) -> Any:
        """Marks results if all given arrays that have no values yet are known."""
        traced = [a for a in given if isinstance(a, Tracer)]
        if not traced or not all(isinstance(a, _Known) and a._trace is self for a in traced):
            return out
        return [_Known(self, a) for a in out] if isinstance(out, list | tuple) else _Known(self, out)

    @override
    def stage_value(self, val: Any) -> Any:
        with _under(self.parent):
            out = self.parent.stage_value(self.plain(val))
        return self._marked([val], out)

    @override
    def process_primitive(self, primitive: Any, tracers: Sequence[Any], params: Mapping[str, Any], /) -> Any:
        with _under(self.parent):
            out = primitive.bind(*map(self.plain, tracers), **params)
        return self._marked(tracers, out)

    @override
    def process_custom_jvp_call(self, primitive: Any, fun: Any, jvp: Any, tracers: Any, /, **options: Any) -> Any:
        with _under(self.parent):
            plain = [self.plain(t) for t in tracers]
            out = self.parent.process_custom_jvp_call(primitive, fun, jvp, plain, **options)
        return self._marked(tracers, out)

    @override
    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Any, /, **options: Any
    ) -> Any:
        with _under(self.parent):
            plain = [self.plain(t) for t in tracers]
            out = self.parent.process_custom_vjp_call(primitive, fun, fwd, bwd, plain, **options)
        return self._marked(tracers, out)


def _under(trace: Any) -> Any:
    """A context in which this trace sees all operations."""
    return set_current_trace(trace)


class _Plain(Messenger):
    """Hands plain arrays to the handlers around a model, which live longer than its ``_Trace``."""

    def __init__(self, trace: _Trace) -> None:
        self.trace = trace
        super().__init__()

    @override
    def process_message(self, msg: dict[str, Any]) -> None:
        for part in ("fn", "args", "kwargs", "value", "scale"):
            if msg.get(part) is not None and not (part == "fn" and msg["type"] != "sample"):
                msg[part] = jax.tree.map(self.trace.plain, msg[part], is_leaf=lambda v: isinstance(v, _Known))


def _run(model: Model, args: Any, kwargs: Any, book: _Recorded | _Replayed) -> None:
    """Runs a model with arguments that can be asked for sizes."""
    with take_current_trace() as parent:
        trace = _Trace(parent, book)

        def asked(leaf: Any) -> Any:
            return _Known(trace, jax.numpy.asarray(leaf)) if is_array(leaf) else leaf

        with _under(parent):
            args, kwargs = jax.tree.map(asked, (args, kwargs))
        with _under(trace), _Plain(trace):
            model(*args, **kwargs)
