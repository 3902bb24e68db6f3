"""The compiled parts of variational message passing. The first argument of each function is the program."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from adfpp.engine.message_passing import Local, LogJoint, mapped
from adfpp.model import Program

_DRAWS = 256  # of the prior, whose quartiles only roughly place a random start

Values = tuple[Any, ...]  # the values of the parts, as in ``ProductBelief.parts``


class Rows(NamedTuple):
    """The rows of a call.

    Attributes:
        arrays: Row arrays ``(n, ...)``; a refused row has the numbers of another one.
        weight: ``(n,)`` how often each row counts: 0 for a refused row.
    """

    arrays: tuple[jax.Array, ...]
    weight: jax.Array


class Swept(NamedTuple):
    """The result of a sweep.

    Attributes:
        values: The new values of the parts.
        messages: For each part, what the rows add to its natural parameters.
        bound: ``()`` the lower bound of the log evidence at these values.
        log_z: ``(n,)`` each row's share of the bound.
        proper: ``(parts,)`` whether each part could be updated; a part that could not keeps its value.
    """

    values: Values
    messages: tuple[jax.Array, ...]
    bound: jax.Array
    log_z: jax.Array
    proper: jax.Array


def joint_of(program: Program) -> LogJoint:
    """The log joint of a program that was read for variational message passing."""
    assert program.conjugate is not None
    return program.conjugate.joint


def observations_of(program: Program) -> tuple[str, ...]:
    """The names of the observations of a row."""
    assert program.conjugate is not None
    return program.conjugate.observations


def sweep(
    program: Program,
    values: Values,
    previous: Values,
    beyond: jax.Array,
    rows: Rows,
    shared: Sequence[jax.Array],
    absorbed: tuple[jax.Array, ...],
    hint: jax.Array | None,
    far: ArrayLike,
) -> Swept:
    """Updates the local latents of all rows and then every part once, each given the latest values of the others.

    Args:
        program: The program.
        values: The values of the parts.
        previous: Their values before the last sweep.
        beyond: ``()`` how far the sweep starts beyond ``values``, as a multiple of the last change of the natural
            parameters; 0 to start from ``values``. If some part is not proper there, the sweep starts from ``values``.
        rows: The rows.
        shared: The shared arrays.
        absorbed: For each part, what other rows have added to its natural parameters.
        hint: ``(n, C)`` log weights of the combinations of a row's discrete values, to start from.
        far: Which probe is used; it makes no difference in a conjugate model.

    Returns:
        The new values, and the lower bound with the best local latents.
    """
    joint, inputs = joint_of(program), program.prior_inputs(shared)
    values = _extrapolated(joint, values, previous, beyond)
    local = joint.local_posteriors(values, rows.arrays, shared, far)
    if hint is not None:
        local = local._replace(log_p=jax.nn.log_softmax(local.log_p + hint, -1))
    messages, proper = [], []
    for k, part in enumerate(joint.parts):
        message = joint.message(k, values, rows.arrays, shared, rows.weight, local, far)
        natural = joint.prior_message(k, values, inputs, far) + absorbed[k] + message
        new, good = part.from_natural(natural)
        good &= jnp.all(jnp.isfinite(natural)) & part.proper(new)
        kept = jax.tree.map(lambda a, b, good=good: jnp.where(good, a, b), new, values[k])
        values = (*values[:k], kept, *values[k + 1 :])
        messages.append(message)
        proper.append(good)
    log_z = _log_z(joint, values, rows, shared)
    return Swept(values, tuple(messages), _bound(joint, values, log_z, absorbed, inputs), log_z, jnp.stack(proper))


def _extrapolated(joint: LogJoint, values: Values, previous: Values, beyond: jax.Array) -> Values:
    """The values beyond the last change of the natural parameters."""
    moved, good = [], beyond > 0.0
    for part, now, before in zip(joint.parts, values, previous, strict=True):
        natural = part.natural(now)
        value, finite = part.from_natural(natural + beyond * (natural - part.natural(before)))
        moved.append(value)
        good &= finite & part.proper(value)
    return jax.tree.map(lambda a, b: jnp.where(good, a, b), tuple(moved), tuple(values))


def _log_z(joint: LogJoint, values: Values, rows: Rows, shared: Sequence[jax.Array]) -> jax.Array:
    """Each row's share of the lower bound, ``(n,)``, 0 for rows of weight 0."""
    return jnp.where(rows.weight > 0, rows.weight * joint.local_posteriors(values, rows.arrays, shared).log_z, 0.0)


def bound(
    program: Program, values: Values, rows: Rows, shared: Sequence[jax.Array], absorbed: tuple[jax.Array, ...]
) -> tuple[jax.Array, jax.Array]:
    """The lower bound, and each row's share of it ``(n,)``. The arguments are those of ``sweep``."""
    joint = joint_of(program)
    log_z = _log_z(joint, values, rows, shared)
    return _bound(joint, values, log_z, absorbed, program.prior_inputs(shared)), log_z


def _bound(
    joint: LogJoint,
    values: Values,
    log_z: jax.Array,
    absorbed: tuple[jax.Array, ...],
    inputs: Sequence[jax.Array],
) -> jax.Array:
    """The lower bound, up to a constant if other rows have been absorbed."""
    others = [part.expected_sum(v, a) for part, v, a in zip(joint.parts, values, absorbed, strict=True)]
    return jnp.sum(log_z) + joint.global_bound(values, inputs) + sum(others)


def messages(
    program: Program, values: Values, rows: Rows, shared: Sequence[jax.Array], far: ArrayLike
) -> list[jax.Array]:
    """The optimal natural parameters of each part, the others being fixed, and the rows' local posteriors.

    If the log joint is linear in the statistics of each part, they do not depend on the probe.
    """
    joint, inputs = joint_of(program), program.prior_inputs(shared)
    found = joint.local_posteriors(values, rows.arrays, shared, far)
    out = []
    for k in range(len(joint.parts)):
        message = joint.message(k, values, rows.arrays, shared, rows.weight, found, far)
        out.append(joint.prior_message(k, values, inputs, far) + message)
    return [*out, jnp.concatenate([jnp.ravel(a) for a in found])]


def apart(one: jax.Array, other: jax.Array) -> jax.Array:
    """The largest difference of two vectors, relative to their largest number or 1; infinite if it is unknown."""
    gap = jnp.max(jnp.abs(one - other)) / (1.0 + jnp.max(jnp.abs(one)))
    return jnp.where(jnp.isnan(gap), jnp.inf, gap)


def local_posteriors(
    program: Program, values: Values, rows: Rows, shared: Sequence[jax.Array], far: ArrayLike = 0.0
) -> Local:
    """The local latents of each row, with the rows along the leading axes."""
    return joint_of(program).local_posteriors(values, rows.arrays, shared, far)


def local_marginals(program: Program, found: Local) -> dict[str, Any]:
    """The marginals of each local latent: probabilities, or mean and standard deviation in unconstrained space."""
    p = jnp.exp(found.log_p)  # (n, C)
    mean = jnp.einsum("nc,ncm->nm", p, found.mean)
    variance = jnp.sum(found.scale**2, -1) + (found.mean - mean[:, None]) ** 2
    sd = jnp.sqrt(jnp.einsum("nc,ncm->nm", p, variance))
    out: dict[str, Any] = {}
    for s in program.local:
        if s.support is None:
            out[s.name] = (s.per_row(mean[:, s.where]), s.per_row(sd[:, s.where]))
        else:
            values = joint_of(program).combinations[:, s.where]  # (C, size)
            alike = values[None] == s.support[:, None, None]  # (K, C, size)
            chances = jnp.einsum("nc,kcs->kns", p, jnp.asarray(alike, p.dtype))
            out[s.name] = jnp.moveaxis(s.per_row(chances), 0, -1)
    return out


def quartiles(program: Program, shared: Sequence[jax.Array]) -> jax.Array:
    """The quartiles ``(3, N)`` of draws from the prior, without those that are not finite."""
    draws = jax.vmap(program.prior_sampler(shared))(jax.random.split(jax.random.key(5), _DRAWS))
    draws = jnp.where(jnp.isfinite(draws), draws, jnp.nan)
    return jnp.nanquantile(draws, jnp.asarray([0.25, 0.5, 0.75], draws.dtype), axis=0)


def row_status(
    program: Program, theta: jax.Array, arrays: tuple[jax.Array, ...], shared: Sequence[jax.Array]
) -> jax.Array:
    """The ``Status`` code of each row at θ, ``(n,)``."""
    model = program.conjugate
    assert model is not None
    both = jnp.concatenate([theta, jnp.zeros(model.joint.numbers, theta.dtype)])

    def of(row: tuple[jax.Array, ...]) -> jax.Array:
        return model.row_status(both, [*(a[None] for a in row), *shared])

    return mapped(of, arrays, 512)
