"""The arguments of one call, bound to the names of the model's parameters, and the error that refuses a model."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import jax
import numpy as np
from jax.core import Tracer
from numpyro.primitives import Messenger

Model = Callable[..., object]
Array = np.ndarray | jax.Array | jax.ShapeDtypeStruct
# unsigned integers of 32 bits may be a random key
_NARROW = tuple(np.dtype(t) for t in ("int8", "int16", "int32", "uint8", "uint16"))
Structure = Any  # a jax.tree_util.PyTreeDef, which JAX declares as a variable and not as a type


class ModelError(ValueError):
    """A model that cannot be learned row by row; the message names the latent or observation, cause and remedy."""


class ValueNeeded(ModelError):
    """A model that reads the value of an array that is not known while the model is traced."""


class Bound(NamedTuple):
    """A call's arguments, bound to the names of the model's parameters.

    Attributes:
        arguments: ``{parameter: argument}``; None is left out where it is the parameter's default.
        leaves: The arrays, numbers and strings in the arguments, in the order of ``treedef``.
        names: For each leaf the parameter that it belongs to.
        treedef: The structure of the arguments.
    """

    arguments: dict[str, object]
    leaves: list[Any]
    names: list[str]
    treedef: Structure


def is_array(leaf: object) -> TypeGuard[Array]:
    """Whether a leaf is an array (NumPy, JAX, traced, or the shape of one), not a Python number or a string."""
    return isinstance(leaf, np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct)


def is_whole_number(leaf: object) -> bool:
    """Whether a leaf is a whole number of Python, which may be a number of rows."""
    return isinstance(leaf, int) and not isinstance(leaf, bool)


def canonical_dtype(leaf: Array) -> np.dtype:
    """The dtype that JAX gives an array, which depends on whether 64-bit numbers are enabled."""
    return jax.dtypes.canonicalize_dtype(leaf.dtype)


def widened(leaf: Any) -> Any:
    """An array with integers of JAX's default width.

    NumPyro's distributions compute with counts in their own dtype, in which ``127 + 1`` overflows for 8 bits, and JAX
    computes the log-gamma function of integers of 32 bits in float32.
    """
    if not is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct) or leaf.dtype not in _NARROW:
        return leaf
    return leaf.astype(jax.dtypes.canonicalize_dtype(np.int64))


def refuse_overflow(names: Sequence[str], leaves: Sequence[object]) -> None:
    """Refuses integers that do not fit the dtype that JAX gives them, which would silently become other integers.

    Raises:
        ModelError: When an array has such integers; the message names the argument.
    """
    for name, leaf in zip(names, leaves, strict=True):
        if not is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct | Tracer):
            continue
        if leaf.dtype.kind not in "iu" or canonical_dtype(leaf) == leaf.dtype or not leaf.size:
            continue
        limits, least, largest = np.iinfo(canonical_dtype(leaf)), int(leaf.min()), int(leaf.max())
        if least < limits.min or largest > limits.max:
            raise ModelError(
                f"Argument {name!r} has integers from {least} to {largest}. They do not fit {limits.dtype}, the dtype "
                "that JAX gives them when 64-bit numbers are disabled. Code them in the range of that dtype, or enable "
                'them before any computation: jax.config.update("jax_enable_x64", True).'
            )


def signature_of(model: Model) -> inspect.Signature:
    """The signature of a model, also behind a handler of NumPyro that decorates it, ``@handlers.reparam(...)``."""
    while isinstance(model, Messenger) and not hasattr(model, "__wrapped__") and model.fn is not None:
        model = model.fn
    return inspect.signature(model)


def bind(model: Model, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Bound:
    """Binds a call to the names of the model's parameters.

    Raises:
        TypeError: When an argument is a list or a table, or holds values that are not numbers, such as text or dates,
            or has a mask.
        ModelError: When an argument has integers that do not fit the dtype that JAX gives them.
    """
    signature = signature_of(model)
    arguments: dict[str, object] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        if signature.parameters[name].kind == inspect.Parameter.VAR_KEYWORD:
            arguments |= value
        # a call that leaves out an argument whose default is None is the same call
        elif value is not None or signature.parameters[name].default is not None:
            arguments[name] = value
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
        if isinstance(leaf, np.ma.MaskedArray):
            raise TypeError(
                f"Argument {name!r} is a masked array (numpy.ma), and JAX would use the numbers under its mask. Leave "
                f"out the rows that are masked; or pass the numbers, {name}.filled(0), and which of them count, "
                f"~numpy.ma.getmaskarray({name}), as two arguments of the model, and give the second one to "
                "handlers.mask. Rows with NaN, as of .filled(numpy.nan), are refused with the status NOT_FINITE."
            )
        if is_array(leaf) and not isinstance(leaf, jax.ShapeDtypeStruct) and leaf.dtype.kind in "OUSMm":
            raise TypeError(
                f"Argument {name!r} has dtype {leaf.dtype}, which JAX does not take. Encode it as numbers first "
                "(categories as integer codes, times as floats)."
            )
    refuse_overflow(names, leaves)
    return Bound(arguments, leaves, names, treedef)


def call(model: Model, arguments: Mapping[str, object]) -> object:
    """Calls a model with arguments bound by name."""
    positional, keyword, rest = [], {}, dict(arguments)
    for name, parameter in signature_of(model).parameters.items():
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
    """Refuses a model with a parameter that is also an option of ``function``, unless it is passed by position."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    options = {name for name, p in inspect.signature(function).parameters.items() if p.kind in kinds}
    clashes = sorted(options & set(list(signature_of(model).parameters)[len(args) :]))
    if clashes:
        raise ValueError(
            f"The model's argument {clashes[0]!r} is also an option of {function.__name__}; pass it by position, or "
            "rename it."
        )
