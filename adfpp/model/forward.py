"""Runs a model forwards with all its data, for the shapes and dimensions of its named values and draws of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from adfpp.model.arguments import Structure, bind, is_array
from adfpp.model.program import Program
from adfpp.model.visit import Recorded, record

_NUMBERS = 1 << 22  # numbers of one variable computed at once


@dataclass(frozen=True)
class Variable:
    """The shape and the dimensions of a named value of a model.

    Attributes:
        name: The name of the value.
        kind: "latent", "observed", "factor" or "deterministic".
        shape: The shape of the value.
        dims: A name for each axis: that of its plate, or given by ``infer={"event_dims": ...}``; None for other axes.
        event_dim: The number of axes of one event (0 for a deterministic value).
        value: The observed value.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dims: tuple[str | None, ...]
    event_dim: int
    value: np.ndarray | None


class Forward:
    """A model and the data of one call, run forwards.

    Args:
        program: The model as it was read.
        args: The model's arguments, with or without the observed data.
        kwargs: The model's keyword arguments.
    """

    def __init__(self, program: Program, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        self.program = program
        self.bound = bind(program.model, args, kwargs)

    @cached_property
    def forms(self) -> dict[str, Variable]:
        """Every latent, observation, factor and deterministic value, in the model's order."""
        theta = jnp.zeros(self.program.size, self.program.dtype)
        program = self.program
        recorded = record(program.model, self.bound.arguments, program.substitution(theta), 0, False, program.once)
        return {name: _variable(one) for name, one in recorded.items()}

    @cached_property
    def arguments(self) -> dict[str, np.ndarray]:
        """Arrays and numbers among the arguments by name, as ``x``, or ``data.x`` inside a dict."""
        with_path, _ = jax.tree_util.tree_flatten_with_path(self.bound.arguments)
        named = {".".join(str(getattr(p, "key", getattr(p, "idx", p))) for p in path): leaf for path, leaf in with_path}
        arrays = {name: np.asarray(leaf) for name, leaf in named.items()}
        return {name: a for name, a in arrays.items() if a.dtype.kind in "biufc"}

    def draw(self, rng_key: jax.Array, theta: ArrayLike, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Draws values ``{name: (S, *shape)}`` at ``(S, N)`` θ, with new observations.

        Args:
            rng_key: Key for the observations.
            theta: ``(S, N)`` the points.
            names: The names of the values to return.
        """
        theta = jnp.asarray(theta, self.program.dtype)
        largest = max((int(np.prod(self.forms[n].shape)) for n in names), default=1)
        batch = max(1, min(len(theta), _NUMBERS // max(1, largest)))
        leaves = self.bound.leaves
        arrays = [jnp.asarray(leaf) for leaf in leaves if is_array(leaf)]
        options = _Options(self.bound.treedef, tuple(None if is_array(leaf) else (type(leaf), leaf) for leaf in leaves))
        keys = jax.random.split(rng_key, len(theta))
        return jax.device_get(self.program.compiled(_drawn, options, tuple(names), batch)(theta, keys, arrays))


@dataclass(frozen=True)
class _Options:
    """The structure of a call's arguments: for each leaf ``(type, value)``, or None for an array.

    The types tell 1, 1.0 and True apart, which are equal.
    """

    treedef: Structure
    fixed: tuple[tuple[type, object] | None, ...]

    def rebuild(self, arrays: Sequence[jax.Array]) -> dict[str, object]:
        """The arguments with these arrays."""
        pool = iter(arrays)
        return jax.tree.unflatten(self.treedef, [next(pool) if leaf is None else leaf[1] for leaf in self.fixed])


def _drawn(
    program: Program,
    options: _Options,
    names: tuple[str, ...],
    batch: int,
    theta: jax.Array,
    keys: jax.Array,
    arrays: Sequence[jax.Array],
) -> dict[str, jax.Array]:
    arguments = options.rebuild(arrays)

    def one(at: tuple[jax.Array, jax.Array]) -> dict[str, jax.Array]:
        recorded = record(program.model, arguments, program.substitution(at[0]), at[1], True, program.once)
        return {n: jnp.asarray(recorded[n].value) for n in names}

    return jax.lax.map(one, (theta, keys), batch_size=batch)


def _variable(recorded: Recorded) -> Variable:
    fn = recorded.fn
    shape = tuple(np.shape(recorded.value))
    event_dim = 0 if fn is None else fn.event_dim
    dims: list[str | None] = [None] * len(shape)
    plates = sorted(recorded.plates, key=lambda plate: plate.dim)
    for place, plate in enumerate(plates):
        # The trailing axes of a deterministic value have no known meaning, so its plates come first, as in ArviZ.
        axis = place if fn is None else len(shape) - event_dim + plate.dim
        if 0 <= axis < len(shape) and shape[axis] == plate.size:
            dims[axis] = plate.name
    begin = len(shape) - event_dim if fn is not None else len(plates)
    for axis, dim in zip(range(begin, len(shape)), recorded.event_dims, strict=False):
        dims[axis] = dim
    value = np.asarray(recorded.value) if recorded.kind == "observed" else None
    return Variable(recorded.name, recorded.kind, shape, tuple(dims), event_dim, value)
