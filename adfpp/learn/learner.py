"""The base class of ADF and EP: their options, the session that resolves calls, copies and pickles, the posterior."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.core import Tracer

from adfpp.engine.families import Family, asked_family
from adfpp.engine.tilt import Moments, moments_named
from adfpp.learn.explain import Explanation, explanation
from adfpp.learn.posterior import GivenPrior, Posterior
from adfpp.learn.results import Result
from adfpp.learn.session import Call, Session
from adfpp.model import Model, Program
from adfpp.model.arguments import signature_of
from adfpp.model.reference import ModelReference


class Learner:
    """A learner of one model.

    It has options that never change, and a session. Everything that it learns is in the states that it returns.

    Args:
        model: An ordinary NumPyro model.
        family: The family as the user gave it.
        moments: The moment rules as the user gave them.
        rows: Names of the arguments that carry rows. When None, they are derived from the model; when empty, all data
            of a call are one row.
        revisited: Whether priors that are matched by moments are factors, which are visited repeatedly.
    """

    def __init__(
        self,
        model: Model,
        family: str | Family | Mapping[str, str],
        moments: str | Moments,
        rows: Sequence[str] | None,
        revisited: bool,
    ) -> None:
        if not callable(model):
            raise TypeError(f"model must be a callable with numpyro.sample statements; it is {model!r}.")
        self.model = model
        self.family = asked_family(family)
        self.moments = moments_named(moments)
        self.rows = (rows,) if isinstance(rows, str) else tuple(rows) if rows is not None else None
        self._revisited = revisited
        clashes = sorted(_option_names(type(self)) & set(signature_of(model).parameters))
        if clashes:
            kind = type(self).__name__
            raise ValueError(
                f"The model's argument {clashes[0]!r} is also an option of {kind}'s methods; rename the argument."
            )
        self.session = Session(model, self.rows, self._rules(), self.family)

    def _rules(self) -> Moments:
        """The moment rules that factors are built with."""
        return self.moments

    def _options(self) -> dict[str, object]:
        """The keyword arguments that make an equal learner of the same model."""
        raise NotImplementedError

    def resolve(self, args: tuple[object, ...], kwargs: Mapping[str, object], state: Any = None) -> Call:
        """Finds the program of a call of this learner, its rows and its shared arrays; ``state`` is continued."""
        return self.session.resolve(args, kwargs, state)

    def _explain(self, prior: GivenPrior, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Explanation:
        call = self.resolve(args, kwargs)
        self.session.check(call)
        return explanation(call.program, self.session.prior(call, prior, self._revisited))

    def get_posterior(self, state: Any) -> Posterior:
        """The posterior of a state or of a result."""
        state = state_of(state)
        program = self.session.program_of(state)
        return Posterior(program, program.family, state.belief)

    # ------------------------------------------------------------------------------------------ copies and pickles

    def __copy__(self) -> "Learner":
        """Makes a learner with the same session."""
        new = object.__new__(type(self))
        vars(new).update(vars(self))
        return new

    def __deepcopy__(self, memo: dict[int, object]) -> "Learner":
        """Makes a learner with a session of its own, and with the same model and options."""
        return _remade(type(self), ModelReference(self.model), self._options(), self.session.latest)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles the model by its import path (by cloudpickle if it has none), the options, and the latest program."""
        return _remade, (type(self), ModelReference(self.model), self._options(), self.session.latest)


def _remade(kind: type[Learner], model: ModelReference, options: dict[str, Any], latest: Program | None) -> Learner:
    learner = kind(model.model, **options)
    learner.session.latest = latest
    return learner


def state_of(state: object, *kinds: type) -> Any:
    """Returns the state of a result; a state is returned as it is.

    Args:
        state: The state or result that the user passed.
        *kinds: The classes of states that are taken; any class if there are none.

    Raises:
        TypeError: When it is something else.
    """
    found = state.state if isinstance(state, Result) else state
    if kinds and not isinstance(found, kinds):
        raise TypeError(
            f"state must be {' or '.join(kind.__name__ for kind in kinds)}, or a result that contains one; it is a "
            f"{type(found).__name__}. update returns two values: state, info = adf.update(state, ...). To start from a "
            "Posterior, or from the state of another learner, pass prior=learner.get_posterior(state) to init or run."
        )
    return found


def refuse_tracers(method: str, instead: str, *values: object) -> None:
    """Refuses to run inside a JAX transformation what reads numbers in Python.

    Args:
        method: The method, in words.
        instead: What to do instead.
        *values: Arguments of the method.

    Raises:
        TypeError: When one of the values is traced.
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values)):
        raise TypeError(
            f"{method} reads the numbers that it computes, in Python, so that it cannot run inside jax.jit, vmap, scan "
            f"or another transformation. {instead}"
        )


def _option_names(kind: type[Learner]) -> set[str]:
    """The names of all parameters of the methods that take the model's arguments."""
    methods = [getattr(kind, name, None) for name in ("explain", "init", "update", "run", "get_local")]
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = [p for m in methods if m is not None for p in inspect.signature(m).parameters.values()]
    return {p.name for p in parameters if p.kind in kinds}


def checked_prior(prior: GivenPrior) -> GivenPrior:
    """Returns the option ``prior`` of ``init`` and ``run``, or raises if it has the wrong type."""
    if prior is not None and not isinstance(prior, Posterior | Mapping):
        raise TypeError(
            f"prior must be a Posterior or a dict {{latent: distribution}}; it is a {type(prior).__name__}."
        )
    return prior
