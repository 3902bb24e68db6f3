"""Evaluating the equal parts of a function once, so that what several visits of a row share is one value."""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import Jaxpr, Literal
from jax.typing import ArrayLike

from adfpp.engine.trace.interpret import Env, Value, bind

_Done: TypeAlias = dict[Hashable, list[Value]]  # the outputs of equations, and constants


def evaluated_once(f: Callable[..., list[jax.Array]]) -> Callable[..., list[jax.Array]]:
    """A function whose equal parts are evaluated once.

    The visits of a row differ in the values of its discrete latents alone. What they have in common, such as x @ w, is
    to be one number of the field, not one for each visit.
    """

    def g(*args: ArrayLike) -> list[jax.Array]:
        closed = jax.make_jaxpr(f)(*args)
        # By primitive, parameters and operands; it keeps every value alive, so that identities stay unique.
        done: _Done = {}
        return _evaluate(closed.jaxpr, _shared_constants(closed.consts, done), args, done)

    return g


def _evaluate(jaxpr: Jaxpr, consts: Sequence[Value], args: Sequence[Value], done: _Done) -> list[Value]:
    env: Env = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        operands = [v.val if isinstance(v, Literal) else env[v] for v in eqn.invars]
        inside = eqn.params.get("jaxpr") if eqn.primitive.name in ("jit", "pjit") else None
        if inside is not None:
            values = _evaluate(inside.jaxpr, _shared_constants(inside.consts, done), operands, done)
        else:
            names = tuple(_content(a) for a in operands)
            try:
                key: Hashable = (eqn.primitive, tuple(sorted(eqn.params.items())), names)
                known = done.get(key)
            except TypeError:  # parameters that cannot be compared
                key, known = object(), None
            if known is None:
                known = done[key] = list(bind(eqn, operands))
            values = known
        env.update(zip(eqn.outvars, values, strict=True))
    return [v.val if isinstance(v, Literal) else env[v] for v in jaxpr.outvars]


def _shared_constants(consts: Sequence[Value], done: _Done) -> list[Value]:
    """Constants, equal ones as one object."""
    return [done.setdefault(_content(c), [c])[0] for c in consts]


def _content(a: Value) -> Hashable:
    """A key for an operand: its identity if it is a traced value, its numbers if it is a known array.

    The known arrays are not listed by type, because JAX 0.8 and 0.9 keep NumPy's arrays in a class of their own that is
    no subclass of ``np.ndarray``.
    """
    if isinstance(a, Tracer):
        return id(a)
    try:
        known = np.asarray(a)
    except TypeError:  # a random key shows no numbers
        return id(a)
    return id(a) if known.dtype == object else (str(known.dtype), known.shape, known.tobytes())
