"""The arguments of one call, bound to the names of the model's parameters, and the error that refuses a model."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeGuard

import jax
import numpy as np

Model = Callable[..., object]
Array = np.ndarray | jax.Array | jax.ShapeDtypeStruct
Structure = Any  # a jax.tree_util.PyTreeDef, which JAX declares as a variable and not as a type


class ModelError(ValueError):
    """A model that cannot be learned row by row; the message names the latent or observation, cause and cure."""


class Bound(NamedTuple):
    """A call's arguments, bound to the names of the model's parameters.

    Attributes:
        arguments: ``{parameter: argument}``; arguments that are None are left out.
        leaves: The arrays, numbers and strings in them, in the order of
        treedef: the structure of the arguments.
        names: For each leaf the parameter that it belongs to.
    """

    arguments: dict[str, object]
    leaves: list[Any]
    names: list[str]
    treedef: Structure


def is_array(leaf: object) -> TypeGuard[Array]:
    """Whether a leaf is an array (NumPy, JAX, traced, or the shape of one), not a Python number or a string."""
    return isinstance(leaf, np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct)


def canonical_dtype(leaf: Array) -> np.dtype:
    """The dtype that JAX gives an array, which depends on whether 64-bit numbers are enabled."""
    return jax.dtypes.canonicalize_dtype(leaf.dtype)


def bind(model: Model, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Bound:
    """Binds a call to the names of the model's parameters.

    Raises:
        TypeError: When an argument is a list or a table, or holds what JAX has no numbers for.
    """
    signature = inspect.signature(model)
    arguments: dict[str, object] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        if signature.parameters[name].kind == inspect.Parameter.VAR_KEYWORD:
            arguments |= value
        else:
            arguments[name] = value
    arguments = {name: value for name, value in arguments.items() if value is not None}
    for name, value in arguments.items():
        if isinstance(value, list) and all(isinstance(v, int | float) for v in jax.tree.leaves(value)):
            raise TypeError(f"Argument {name!r} is a list of numbers. Pass an array: numpy.asarray({name}).")
    with_path, treedef = jax.tree_util.tree_flatten_with_path(arguments)
    names = [path[0].key for path, _ in with_path]
    leaves = [leaf for _, leaf in with_path]
    for name, leaf in zip(names, leaves, strict=True):
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
    return Bound(arguments, leaves, names, treedef)


def call(model: Model, arguments: Mapping[str, object]) -> object:
    """Calls a model with arguments bound by name."""
    positional, keyword, rest = [], {}, dict(arguments)
    for name, parameter in inspect.signature(model).parameters.items():
        if name not in rest:
            continue
        if parameter.kind == inspect.Parameter.POSITIONAL_ONLY:
            positional.append(rest.pop(name))
        elif parameter.kind == inspect.Parameter.VAR_POSITIONAL:
            raise ModelError(
                f"The model takes *{name}. adfpp finds the arguments that carry rows by the names of the parameters: "
                "give the model named parameters."
            )
        else:
            keyword[name] = rest.pop(name)
    return model(*positional, **keyword, **rest)


def refuse_clashes(model: Model, function: Callable[..., object], args: tuple[object, ...]) -> None:
    """Refuses a model with an argument that this function would take for its own option, unless by position."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    options = {name for name, p in inspect.signature(function).parameters.items() if p.kind in kinds}
    clashes = sorted(options & set(list(inspect.signature(model).parameters)[len(args) :]))
    if clashes:
        raise ValueError(
            f"The model's argument {clashes[0]!r} is also an option of {function.__name__}; pass it by position, or "
            "rename it."
        )
