"""The base class of ADF and EP: their options, the session that resolves calls, copies and pickles, the posterior."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from adfpp.engine.families import Family, asked_family
from adfpp.engine.tilt import Moments, moments_named
from adfpp.learn.explain import Explanation, explanation
from adfpp.learn.posterior import GivenPrior, Posterior
from adfpp.learn.results import Result
from adfpp.learn.session import Call, Session
from adfpp.model import Model, Program
from adfpp.model.reference import ModelReference


class Learner:
    """A learner of one model.

    It has options that never change, and a session. Everything that it learns is in the states that it returns.

    Args:
        model: An ordinary NumPyro model.
        family: The family as the user gave it.
        moments: The moment rules as the user gave them.
        rows: Names of the arguments that carry rows. When None, they are derived from the model.
        reserved: Names that the learner's own methods use for options.
        revisited: Whether priors that are matched by moments are factors, which are visited repeatedly.
    """

    def __init__(
        self,
        model: Model,
        family: str | Family | Mapping[str, str],
        moments: str | Moments,
        rows: Sequence[str] | None,
        reserved: frozenset[str],
        revisited: bool,
    ) -> None:
        if not callable(model):
            raise TypeError(f"model must be a callable with numpyro.sample statements; it is {model!r}.")
        self.model = model
        self.family = asked_family(family)
        self.moments = moments_named(moments)
        self.rows = (rows,) if isinstance(rows, str) else tuple(rows) if rows is not None else None
        self._revisited = revisited
        clashes = sorted(reserved & set(inspect.signature(model).parameters))
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

    def resolve(self, args: tuple[object, ...], kwargs: Mapping[str, object], going_on: bool = False) -> Call:
        """Finds the program of a call of this learner, its rows and its shared arrays."""
        return self.session.resolve(args, kwargs, going_on)

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


def state_of(state: object) -> Any:
    """Returns the state of a result; a state is returned as it is."""
    return state.state if isinstance(state, Result) else state


def checked_prior(prior: GivenPrior) -> GivenPrior:
    """Returns the option ``prior`` of ``init`` and ``run``, or raises if it has the wrong type."""
    if prior is not None and not isinstance(prior, Posterior | Mapping):
        raise TypeError(
            f"prior must be a Posterior or a dict {{latent: distribution}}; it is a {type(prior).__name__}."
        )
    return prior
