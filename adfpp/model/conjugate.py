"""Reads a model for variational message passing: its log joint as terms, and the parts of the approximation.

The parts follow from the structure of the log joint, which is found in the traced program without any values:

* A latent with a native family (see ``model/families.py``) is a part. If some log-density reads several of its
  components, each component is a part of its own.
* Gaussian latents in which the log joint is jointly quadratic are stored together. Numbers that never meet in one
  log-density are independent given the other parts, so they are separate blocks; this loses nothing.
* The local latents of a row are one part.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from jax.typing import ArrayLike

from adfpp.engine.families.product.conjugate import ConjugateComponents, ConjugatePart, GaussianBlocks
from adfpp.engine.message_passing import Group, LogJoint
from adfpp.engine.status import Status
from adfpp.engine.trace import Trace, polynomial_degree, shape_of, trace
from adfpp.engine.trace.touch import coordinates_read, one_element
from adfpp.model.arguments import ModelError
from adfpp.model.elements import elements
from adfpp.model.latents import Latent
from adfpp.model.local import LocalLatent, prior_elements
from adfpp.model.observations import RowModel, possible_where_masked
from adfpp.model.priors.density import ModelPrior
from adfpp.model.visit import Visit, quiet

MOST_COMBINATIONS = 256  # of the values of a row's discrete latents
_MOST_NUMBERS = 255  # of a Gaussian block: its points are as many


@dataclass(frozen=True, eq=False)
class Terms:
    """The log-densities of a model, as functions of the flat vector (θ, z) and the inputs of the traced row.

    Attributes:
        row_model: The model of one row.
        prior_model: The prior of the latents that all rows share.
    """

    row_model: RowModel
    prior_model: ModelPrior

    @property
    def start(self) -> int:
        """Length of θ."""
        return sum(latent.size for latent in self.row_model.latents)

    def prior(self, theta: jax.Array, discrete: jax.Array, inputs: Sequence[ArrayLike]) -> list[jax.Array]:
        """The log priors of the shared latents in the coordinates of θ, and the terms of the prior.

        NumPyro does not look whether θ is in the support: the points of a part need not be.
        """
        with quiet():
            return self.prior_model.logs(theta, *inputs)

    def observations(
        self, theta: jax.ShapeDtypeStruct, discrete: np.ndarray, inputs: Sequence[jax.ShapeDtypeStruct]
    ) -> tuple[str, ...]:
        """The names of the observations of a row, whose log-densities are the first ones of ``row``."""
        names: list[str] = []

        def run(v: jax.Array, *rest: jax.Array) -> None:
            names.extend(self._seen(v, jnp.asarray(discrete), rest).observations)

        jax.eval_shape(run, theta, *inputs)
        return tuple(names)

    def _seen(self, theta: jax.Array, discrete: jax.Array, inputs: Sequence[ArrayLike]) -> Visit:
        """The model of one row, with these values of its discrete local latents."""
        values = {
            s.name: discrete[s.where].reshape(s.shape).astype(s.support.dtype)
            for s in self.row_model.local
            if s.support is not None
        }
        return self.row_model.visit(theta, inputs, values)

    def row(self, theta: jax.Array, discrete: jax.Array, inputs: Sequence[ArrayLike]) -> list[jax.Array]:
        """The log-densities of a row's observations, masked elements as 0, and the log priors of its local latents."""
        with quiet():
            return self._row(theta, discrete, inputs)

    def _row(self, theta: jax.Array, discrete: jax.Array, inputs: Sequence[ArrayLike]) -> list[jax.Array]:
        local, seen = self.row_model.local, self._seen(theta, discrete, inputs)
        logs = []
        for observed in seen.observations.values():
            each = elements(observed.fn, observed.value)
            if each.mask is not None:  # a NaN in a masked element must not reach a derivative
                each = elements(observed.fn, possible_where_masked(each, jnp.asarray(observed.value)))
            logs.append(jnp.ravel(each.masked_log_prob()))
        return logs + [prior_elements(seen.latents[s.name], s, theta, self.start) for s in local]


class _Element(NamedTuple):
    """One number among the log-densities: which array, its place there, and the coordinates of (θ, z) that it reads."""

    array: int
    place: int
    reads: np.ndarray


@dataclass(frozen=True, eq=False)
class ConjugateModel:
    """A model as it was read for variational message passing.

    Attributes:
        joint: The log joint as terms, and the parts of the approximation.
        row_model: The model of one row.
        observations: The names of the observations of a row.
    """

    joint: LogJoint
    row_model: RowModel
    observations: tuple[str, ...]

    def log_likelihood(self, theta: jax.Array, inputs: Sequence[ArrayLike]) -> dict[str, jax.Array]:
        """The log-likelihood of a row at θ ``(1,)``, without its local latents, under its observations' names."""
        certain = [(jnp.ones(1, theta.dtype), theta[part.where][None]) for part in self.joint.parts]
        found = self.joint.local_posterior(certain, [jnp.asarray(a) for a in inputs])
        return {", ".join(self.observations): found.log_z[None]}

    def row_status(self, theta: jax.Array, inputs: Sequence[ArrayLike]) -> jax.Array:
        """The ``Status`` code of a row at (θ, z): ``OK``, ``NOT_FINITE`` or ``OUT_OF_SUPPORT``."""
        found = self.row_model.outputs(theta, inputs)
        unknown = impossible = jnp.zeros((), bool)
        for entry in found.entries:
            logs = found.arrays[entry.log_prob]
            counted = jnp.ones(logs.shape, bool) if entry.counted is None else found.arrays[entry.counted]
            unknown |= jnp.any(counted & jnp.isnan(logs))
            impossible |= jnp.any(counted & jnp.isinf(logs))
            if entry.finite is not None:
                unknown |= jnp.any(counted & ~found.arrays[entry.finite])
            if entry.supported is not None:
                impossible |= jnp.any(counted & ~found.arrays[entry.supported])
        worst = jnp.where(impossible, int(Status.OUT_OF_SUPPORT), int(Status.OK))
        return jnp.where(unknown, int(Status.NOT_FINITE), worst)


def conjugate_model(
    row_model: RowModel, prior: ModelPrior, theta: jax.ShapeDtypeStruct, inputs: Sequence[jax.ShapeDtypeStruct]
) -> ConjugateModel:
    """Reads the log joint of a model, and finds the parts of its approximation.

    Args:
        row_model: The model of one row.
        prior: The prior of the latents that all rows share.
        theta: Shape of θ followed by the row's local numbers.
        inputs: Shapes of one row's arrays and of the shared ones.

    Raises:
        ModelError: When a row has too many combinations of discrete values, or a Gaussian block has too many numbers.
    """
    terms = Terms(row_model, prior)
    combinations = _combinations(row_model.local)
    numbers = sum(s.size for s in row_model.local if s.support is None)
    both, theta = theta, jax.ShapeDtypeStruct((terms.start,), theta.dtype)
    of_prior = _elements(trace(lambda v, *rest: terms.prior(v, jnp.zeros(0), rest), theta, *inputs), terms.start)
    by_combination = [
        _elements(trace(lambda v, *rest, c=values: terms.row(v, c, rest), both, *inputs), terms.start + numbers)
        for values in combinations  # a latent that is selected by a discrete value is read at one place each time
    ]
    of_row = [each[0]._replace(reads=np.any([e.reads for e in each], 0)) for each in zip(*by_combination, strict=True)]
    reads = [e.reads[: terms.start] for each in (of_prior, *by_combination) for e in each]
    chosen = [e.reads[: terms.start] for e in of_prior]
    for values in combinations:
        rest, row = _with_known_indices(terms, values, inputs)
        chosen += [e.reads[: terms.start] for e in _elements(trace(row, both, *rest), terms.start + numbers)]
    quadratic = _Quadratic(terms, combinations[0], theta, both, inputs)
    parts = _parts(row_model.latents, reads, chosen, quadratic)
    joint = LogJoint(
        terms.start,
        parts,
        jax.jit(terms.prior, inline=True),  # so that the model is run once, and not for each group and derivative
        jax.jit(terms.row, inline=True),
        _groups(parts, of_prior, terms.start),
        _groups(parts, of_row, terms.start),
        combinations,
        numbers,
    )
    return ConjugateModel(joint, row_model, terms.observations(both, combinations[0], inputs))


def _with_known_indices(
    terms: Terms, values: np.ndarray, inputs: Sequence[jax.ShapeDtypeStruct]
) -> tuple[list[jax.ShapeDtypeStruct], Callable[..., list[jax.Array]]]:
    """A row whose whole numbers are known, so that it selects one component: its other inputs, and its terms.

    Each array of whole numbers has another value. A model that is not linear in a component that two of them select
    has a residual.
    """
    whole = [i for i, s in enumerate(inputs) if jnp.issubdtype(s.dtype, jnp.integer)]
    known = {i: np.full(inputs[i].shape, n, inputs[i].dtype) for n, i in enumerate(whole)}
    rest = [s for i, s in enumerate(inputs) if i not in known]

    def row(v: jax.Array, *given: jax.Array) -> list[jax.Array]:
        pool = iter(given)
        return terms.row(v, jnp.asarray(values), [known[i] if i in known else next(pool) for i in range(len(inputs))])

    return rest, row


def _combinations(local: Sequence[LocalLatent]) -> np.ndarray:
    """``(C, d)`` all combinations of the values of a row's discrete latents; one without values if there are none."""
    supports = []
    for s in local:
        if s.support is None:
            continue
        if s.unlisted:
            raise ModelError(
                f"Latent {s.name!r} is drawn for every row from {s.unlisted}, whose values cannot be enumerated. Use a "
                "Categorical over 0, ..., K - 1 with K large enough."
            )
        supports += [s.support] * s.size
    count = math.prod(len(s) for s in supports)
    if count > MOST_COMBINATIONS:
        names = [s.name for s in local if s.support is not None]
        raise ModelError(
            f"The discrete local latents {names} of one row have {count} combinations of values; at most "
            f"{MOST_COMBINATIONS} are enumerated. Make rows of the things that these latents belong to (words instead "
            "of documents), so that a row has few of them."
        )
    return np.array(list(product(*supports))).reshape(count, len(supports))


def _elements(traced: Trace, size: int) -> list[_Element]:
    """Each log-density of a trace, with the coordinates that it reads."""
    out = []
    for i, output in enumerate(traced.outputs):
        shape = shape_of(output)
        for e in range(math.prod(shape)):
            reads = np.zeros(size, bool)
            if not isinstance(output, Literal):
                reads = coordinates_read(traced, output, one_element(output, e))
            out.append(_Element(i, e, np.broadcast_to(reads, (size,))))
    return out


@dataclass(frozen=True)
class _Apart:
    """A flat vector of two arrays, from which latents are cut out: none of them is computed from both arrays."""

    where: np.ndarray
    chosen: jax.Array
    others: jax.Array

    def __getitem__(self, places: Any) -> jax.Array:
        """The coordinates of one latent."""
        if places.start in self.where:
            first = int(np.searchsorted(self.where, places.start))
            return self.chosen[first : first + places.stop - places.start]
        return self.others[places]


@dataclass(frozen=True)
class _Quadratic:
    """Whether the log joint is jointly quadratic in some coordinates of θ, whatever the others are."""

    terms: Terms
    discrete: np.ndarray
    theta: jax.ShapeDtypeStruct
    both: jax.ShapeDtypeStruct
    inputs: Sequence[jax.ShapeDtypeStruct]

    def __call__(self, where: np.ndarray) -> bool:
        for terms, shape, values in (
            (self.terms.prior, self.theta, np.zeros(0)),
            (self.terms.row, self.both, self.discrete),
        ):

            def at(chosen: jax.Array, others: jax.Array, *rest: Any, terms: Any = terms, values: Any = values) -> Any:
                vector: Any = _Apart(where, chosen, others)
                return terms(vector, values, rest)

            chosen = jax.ShapeDtypeStruct((len(where),), shape.dtype)
            traced = trace(at, chosen, shape, *self.inputs)
            if any(polynomial_degree(traced.equations, [traced.theta], o) > 2 for o in traced.outputs):
                return False
        return True


def _parts(
    latents: Sequence[Latent],
    reads: Sequence[np.ndarray],
    chosen: Sequence[np.ndarray],
    quadratic: Callable[[np.ndarray], bool],
) -> tuple[ConjugatePart[Any], ...]:
    """The parts of the approximation, in the order of θ.

    Args:
        latents: The latents.
        reads: For each log-density, the coordinates that it may read in some row.
        chosen: For each log-density, the coordinates that it reads in one row.
        quadratic: Whether the log joint is jointly quadratic in some coordinates.
    """
    parts: list[ConjugatePart[Any]] = []
    together: list[list[Latent]] = []
    for latent in latents:
        if not latent.size:
            continue
        if latent.native is not None:
            parts += _component_parts(latent, chosen)
            continue
        for group in together:
            if quadratic(np.concatenate([other.places for other in (*group, latent)])):
                group.append(latent)
                break
        else:
            together.append([latent])
    for group in together:
        parts += _gaussian_parts(group, reads)
    return tuple(sorted(parts, key=lambda p: int(p.where.min())))


def _component_parts(latent: Latent, reads: Sequence[np.ndarray]) -> list[ConjugatePart[Any]]:
    """The part of a latent with a native family, or a part for each component if log-densities read several."""
    count = latent.size // latent.native.dim
    where = latent.places.reshape(count, -1)
    meeting = any(mask[where].any(1).sum() > 1 for mask in reads)
    if count > 1 and (meeting or latent.discrete):
        return [ConjugateComponents((latent.name,), latent.native, w, 1) for w in where]
    return [ConjugateComponents((latent.name,), latent.native, where.ravel(), count)]


def _gaussian_parts(latents: Sequence[Latent], reads: Sequence[np.ndarray]) -> list[ConjugatePart[Any]]:
    """Blocks of the Gaussian numbers that meet in some log-density, those of the same size in one part."""
    where = np.concatenate([latent.places for latent in latents])
    block = {int(i): int(i) for i in where}

    def root(i: int) -> int:
        while block[i] != i:
            i = block[i]
        return i

    for mask in reads:
        met = where[mask[where]]
        for i in met[1:]:
            block[root(int(i))] = root(int(met[0]))
    members: dict[int, list[int]] = {}
    for i in where:
        members.setdefault(root(int(i)), []).append(int(i))
    by_size: dict[int, list[list[int]]] = {}
    for places in members.values():
        by_size.setdefault(len(places), []).append(sorted(places))
    if max(by_size) > _MOST_NUMBERS:
        names = ", ".join(latent.name for latent in latents)
        raise ModelError(
            f"{max(by_size)} numbers of {names} meet in the log-density, so that they are one Gaussian block; at most "
            f"{_MOST_NUMBERS} are possible in variational message passing. Use adfpp.EP or adfpp.ADF for this model."
        )
    parts: list[ConjugatePart[Any]] = []
    for blocks in by_size.values():
        places = np.array(blocks)
        names = tuple(v.name for v in latents if np.isin(v.places, places).any())
        parts.append(GaussianBlocks(names, places.ravel(), len(places)))
    return parts


def _groups(parts: Sequence[ConjugatePart[Any]], found: Sequence[_Element], start: int) -> tuple[Group, ...]:
    """The log-densities, grouped by the parts that they read."""
    places: dict[tuple[tuple[int, ...], bool], dict[int, list[int]]] = {}
    for e in found:
        read = tuple(k for k, part in enumerate(parts) if e.reads[part.where].any())
        key = read, bool(e.reads[start:].any())
        places.setdefault(key, {}).setdefault(e.array, []).append(e.place)
    return tuple(
        Group(read, local, tuple((array, np.array(some)) for array, some in arrays.items()))
        for (read, local), arrays in places.items()
    )
