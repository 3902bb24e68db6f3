"""A call's arguments: bound to the model's parameter names, and split into rows, shared arrays and fixed values."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

Model = Callable[..., Any]


class ModelError(ValueError):
    """A model that adfpp cannot fold row by row. The message names the site, the cause and the cure."""


class Layout(NamedTuple):
    """How a call's arguments split into rows, shared arrays and fixed values.

    Attributes:
        treedef: Of the arguments, bound to the model's parameter names.
        names: For each leaf, the parameter it belongs to.
        kinds: For each leaf "row", "shared" or "fixed".
        fixed: The fixed leaves' values (Python numbers, strings, …), in order.
    """

    treedef: Any
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    fixed: tuple[Any, ...]

    def rebuild(self, rows: Sequence[Any], shared: Sequence[Any]) -> dict[str, Any]:
        """The bound arguments, with these arrays in their places."""
        pools = {"row": iter(rows), "shared": iter(shared), "fixed": iter(self.fixed)}
        return jax.tree.unflatten(self.treedef, [next(pools[k]) for k in self.kinds])

    def split(self, leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """(row arrays, shared arrays) among the leaves of a call."""
        rows = [a for a, k in zip(leaves, self.kinds, strict=True) if k == "row"]
        return rows, [a for a, k in zip(leaves, self.kinds, strict=True) if k == "shared"]

    def named(self, kind: str) -> tuple[str, ...]:
        """Parameters with leaves of this kind."""
        return tuple(dict.fromkeys(n for n, k in zip(self.names, self.kinds, strict=True) if k == kind))


def is_array(leaf: Any) -> bool:
    """Whether a leaf is an array (NumPy, JAX or traced), as opposed to a Python number or a string."""
    return isinstance(leaf, np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct)


def bind(
    model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Any], list[str], Any]:
    """Binds a call to the model's parameter names.

    Returns:
        ``(bound, leaves, names, treedef)`` with one name a leaf.
    """
    signature = inspect.signature(model)
    bound: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        if signature.parameters[name].kind == inspect.Parameter.VAR_KEYWORD:
            bound |= value
        else:
            bound[name] = value
    bound = {name: value for name, value in bound.items() if value is not None}
    for name, value in bound.items():
        if isinstance(value, list) and all(isinstance(v, int | float) for v in jax.tree.leaves(value)):
            raise TypeError(f"Argument {name!r} is a list of numbers. Pass an array: numpy.asarray({name}).")
    with_path, treedef = jax.tree_util.tree_flatten_with_path(bound)
    names = [path[0].key for path, _ in with_path]
    for name, leaf in zip(names, [leaf for _, leaf in with_path], strict=True):
        if not is_array(leaf) and hasattr(leaf, "__array__"):
            raise TypeError(
                f"Argument {name!r} is a {type(leaf).__name__}. Pass an array: {name}.to_numpy() or "
                f"numpy.asarray({name})."
            )
        if is_array(leaf) and not isinstance(leaf, jax.ShapeDtypeStruct) and leaf.dtype.kind in "OUSMm":
            raise TypeError(
                f"Argument {name!r} has dtype {leaf.dtype}, which JAX does not take. Encode it as numbers first "
                "(categories as integer codes, times as floats)."
            )
    return bound, [leaf for _, leaf in with_path], names, treedef


def call(model: Model, bound: Mapping[str, Any]) -> Any:
    """Calls a model with arguments bound by name."""
    positional, keyword, rest = [], {}, dict(bound)
    for name, parameter in inspect.signature(model).parameters.items():
        if name not in rest:
            continue
        if parameter.kind == inspect.Parameter.POSITIONAL_ONLY:
            positional.append(rest.pop(name))
        elif parameter.kind == inspect.Parameter.VAR_POSITIONAL:
            raise ModelError(
                f"The model takes *{name}. Rows are told apart by parameter name: give the model named parameters."
            )
        else:
            keyword[name] = rest.pop(name)
    return model(*positional, **keyword, **rest)


def refuse_clashes(model: Model, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Refuses a model with an argument that this function would take for its own option, unless by position."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    options = {name for name, p in inspect.signature(function).parameters.items() if p.kind in kinds}
    clashes = sorted(options & set(list(inspect.signature(model).parameters)[len(args) :]))
    if clashes:
        raise ValueError(
            f"The model's argument {clashes[0]!r} is also an option of {function.__name__}; pass it by position, or "
            "rename it."
        )
