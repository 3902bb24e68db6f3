"""Resolves the calls of a learner: finds the program for their shapes, and splits them into rows and shared arrays.

All learners of a process that need the same program share it. Programs are kept in one cache of limited size, together
with everything that is computed from them once: the row check, the projected prior and the initial belief. A learner
itself stores only which leaves of its calls are rows and which are shared arrays.
"""

import threading
import warnings
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpyro.distributions import Distribution

from adfpp.engine.families import ByLatent, Family
from adfpp.engine.tilt import Moments
from adfpp.learn.posterior import GivenPrior, Posterior
from adfpp.learn.start import Prior, Start, begin
from adfpp.learn.stream import DataArray, RowsMarked
from adfpp.model import READING, Layout, Model, ModelError, Program, RowCheck, bind, is_array, read, same_space
from adfpp.model.arguments import Structure, canonical_dtype, refuse_overflow
from adfpp.model.closed_forms import registered_tilts
from adfpp.model.environment import Same, environment
from adfpp.model.priors import Block, PriorError, Projection

_MOST_PROGRAMS = 16  # a program's compiled code takes up to 1,500 memory maps, and a process may have 65,530


class Call(NamedTuple):
    """A call of a learner's method, resolved.

    Attributes:
        entry: The program and the things that are computed from it.
        rows: The row arrays, in the program's order.
        shared: The shared arrays.
    """

    entry: "Entry"
    rows: list[DataArray]
    shared: list[DataArray]

    @property
    def program(self) -> Program:
        """The model as it was read for these shapes."""
        return self.entry.program

    @property
    def traced(self) -> bool:
        """Whether the call is made inside a JAX transformation, where values are not known."""
        return any(isinstance(a, Tracer) for a in (*self.rows, *self.shared))


@dataclass(eq=False)
class Entry:
    """A program in the cache, with the things that are computed from it once.

    Attributes:
        program: The model as it was read.
        checked: Whether the numeric row check has passed.
        projection: The projected prior, and the shared arrays that it was computed from.
        start: For each value of ``revisited``, the prior and the belief before any row, and the shared arrays that they
            were computed from.
        lock: Locked while one of these is computed.
    """

    program: Program
    checked: bool = False
    projection: tuple[list[np.ndarray], Projection] | None = None
    start: dict[bool, tuple[list[np.ndarray], tuple[Prior, Start]]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


class _Programs:
    """The programs of this process, least recently used first."""

    def __init__(self) -> None:
        self.lock = READING
        self.buckets: OrderedDict[Hashable, list[Entry]] = OrderedDict()

    def find(self, key: Hashable, leaves: Sequence[object]) -> Entry | None:
        """Returns the entry whose program takes these leaves, or None."""
        with self.lock:
            for entry in self.buckets.get(key, ()):
                if _takes(entry.program.layout, leaves, entry.program):
                    self.buckets.move_to_end(key)
                    return entry
        return None

    def add(self, key: Hashable, program: Program) -> Entry:
        """Adds a program, and removes the one that has not been used for the longest time."""
        with self.lock:
            entry = Entry(program)
            self.buckets.setdefault(key, []).append(entry)
            self.buckets.move_to_end(key)
            while sum(map(len, self.buckets.values())) > _MOST_PROGRAMS:
                oldest = next(iter(self.buckets))
                self.buckets[oldest].pop(0)
                if not self.buckets[oldest]:
                    del self.buckets[oldest]
            return entry


_PROGRAMS = _Programs()


class _Signature(NamedTuple):
    """How calls with the same structure and shapes are resolved."""

    entry: Entry
    order_rows: list[int]
    order_shared: list[int]
    rows_at: frozenset[int]


@dataclass(frozen=True)
class _Number:
    """The number of a leaf, put in the place of the leaf."""

    value: int


class Session:
    """Resolves the calls of one learner.

    Args:
        model: The NumPyro model.
        rows: Names of the arguments that carry rows. When None, they are derived from the model.
        moments: How tilted moments are computed.
        family: How the belief is stored, as the user gave it.

    Attributes:
        latest: The program that states of this learner belong to: that of the last ``init``, or the first one read.
    """

    def __init__(self, model: Model, rows: Sequence[str] | None, moments: Moments, family: Family | ByLatent) -> None:
        self.model, self.rows, self.moments, self.family = model, rows, moments, family
        self.latest: Program | None = None
        self._signatures: dict[Hashable, _Signature] = {}
        self._rows_at: dict[Structure, frozenset[int]] = {}
        self._environments: dict[Hashable, None] = {}
        self._checks: dict[Entry, RowCheck] = {}

    # ------------------------------------------------------------------------------------------ calls

    def resolve(self, args: tuple[object, ...], kwargs: Mapping[str, object], going_on: bool = False) -> Call:
        """Finds the program of a call, its rows and its shared arrays. Usually this is a flatten and a look-up.

        Args:
            args: The model's arguments.
            kwargs: Its keyword arguments.
            going_on: Whether the call continues a stream, whose rows must keep their shapes.
        """
        leaves, treedef = jax.tree.flatten((args, kwargs))
        rows_at = self._rows_at.get(treedef, frozenset())
        key = (
            treedef,
            jax.config.jax_enable_x64,  # pyright: ignore[reportAttributeAccessIssue]
            *[
                # a table or a masked array may have the shape and dtype of an array that was taken before
                (type(a), (a.shape[1:] if i in rows_at else a.shape), a.dtype) if hasattr(a, "dtype") else a
                for i, a in enumerate(leaves)
            ],
        )
        try:
            known = self._signatures.get(key)
        except TypeError:
            bind(self.model, args, kwargs)  # names the argument if it is a kind of table
            raise TypeError(
                "An argument of the model is neither an array nor hashable; pass data as arrays and options as Python "
                "numbers, strings or tuples."
            ) from None
        if known is None:
            known = self._learn(args, kwargs, going_on)
            if known.rows_at == rows_at:
                self._signatures[key] = known
            self._rows_at[treedef] = known.rows_at
        rows, shared = [leaves[i] for i in known.order_rows], [leaves[i] for i in known.order_shared]
        call = Call(known.entry, rows, shared)
        length = rows[0].shape[0]
        if length == 0 or any(a.shape[0] != length for a in rows):
            _refuse_lengths(call)
        program = known.entry.program
        if not key[1]:
            names = [n for kind in ("row", "shared") for n in program.layout.leaf_names(kind)]
            refuse_overflow(names, [*rows, *shared])
        if program.pinned is not None and not call.traced and not program.fits(shared):
            raise ModelError(
                "An argument that sets the support of a latent, or that a term of the prior reads, has changed: the "
                "belief is stored in the unconstrained space of the old support, and contains the old prior. Use "
                "another learner."
            )
        return call

    def _learn(self, args: tuple[object, ...], kwargs: Mapping[str, object], going_on: bool) -> _Signature:
        """Resolves a call of a new signature, and reads the model if need be."""
        _, leaves, names, treedef = bind(self.model, args, kwargs)
        # the order of the call's own leaves among the bound ones
        flat, structure = jax.tree.flatten((args, dict(kwargs)))
        numbered = jax.tree.unflatten(structure, [_Number(i) for i in range(len(flat))])
        order = [leaf.value for leaf in bind(self.model, *numbered)[1]]
        entry = self._entry(leaves, names, treedef, args, kwargs, going_on)
        kinds = entry.program.layout.kinds

        def at(kind: str) -> list[int]:
            return [i for i, k in zip(order, kinds, strict=True) if k == kind]

        return _Signature(entry, at("row"), at("shared"), frozenset(at("row")))

    def _entry(
        self,
        leaves: list[object],
        names: list[str],
        treedef: Structure,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        going_on: bool,
    ) -> Entry:
        x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
        request = (Same(self.model), self.rows, self.moments, self.family, x64, registered_tilts(), treedef)
        with _PROGRAMS.lock:
            now = environment(self.model)
            # a program that this learner has read stays valid for it, even if the model's environment has changed
            for seen in dict.fromkeys([now, *self._environments]):
                entry = _PROGRAMS.find((request, seen), leaves)
                if entry is not None:
                    break
            else:
                if going_on:
                    self._explain_mismatch(names, leaves)
                program = read(self.model, args, kwargs, self.rows, self.moments, self.family)
                entry = _PROGRAMS.add((request, now), program)
            self._environments[now] = None
        self.latest = self.latest or entry.program
        return entry

    def _explain_mismatch(self, names: list[str], leaves: list[object]) -> None:
        """Raises if the rows of an argument do not have the shape of the stream's first rows."""
        if self.latest is None:
            return
        layout = self.latest.layout
        row_names = [n for n, k in zip(layout.names, layout.kinds, strict=True) if k == "row"]
        expected = dict(zip(row_names, self.latest.row_shapes, strict=True))
        for name, leaf in zip(names, leaves, strict=True):
            if name in expected and is_array(leaf) and leaf.shape[1:] != expected[name].shape:
                raise ModelError(
                    f"Argument {name!r} has rows of shape {leaf.shape[1:]}; the stream began with rows of shape "
                    f"{expected[name].shape}."
                )

    def check(self, call: Call) -> None:
        """Checks the model with numbers, as soon as two rows have been seen. Traced rows have no values to check."""
        entry = call.entry
        if entry.checked or call.traced:
            return
        with _PROGRAMS.lock, entry.lock:
            check = self._checks.setdefault(entry, RowCheck(entry.program))
            if check.done(call.rows, call.shared):
                entry.checked = True
                del self._checks[entry]

    def check_at(self, call: Call, belief: Any) -> None:
        """Warns if the rows of a finished run do not add up at its belief, although they did at other values of θ."""
        if call.traced:
            return
        try:
            with _PROGRAMS.lock:
                RowCheck(call.program).at(belief.mean, call.rows, call.shared)
        except ModelError as error:
            warnings.warn(f"The result is not the posterior of this model. {error}", RowsMarked, stacklevel=3)

    # ------------------------------------------------------------------------------------------ priors

    def prior(self, call: Call, prior: GivenPrior, revisited: bool) -> Prior:
        """Computes the prior that learning starts from.

        Args:
            call: The resolved call.
            prior: A ``Posterior`` that replaces the model's prior, or ``{latent: distribution}`` for some latents.
            revisited: Whether priors that are matched by moments are factors, which are visited repeatedly. Priors that
                depend on other latents always are.
        """
        with _PROGRAMS.lock, call.entry.lock:
            computed = self._prior(call, prior, revisited)
        return computed._replace(blocks=call.program.family.split(computed.blocks))

    def _prior(self, call: Call, prior: GivenPrior, revisited: bool) -> Prior:
        program = call.program
        if isinstance(prior, Posterior):
            return Prior(posterior_blocks(program, prior), [])
        projection = self._projection(call, prior)
        if not projection.coupled and not projection.terms and not revisited:
            return Prior(projection.blocks, [])
        groups = program.prior_factors
        blocks, factors = [], []
        for i in projection.coupled:
            factors += [(g, None) for g in groups[program.latents[i].name]]
        for name in projection.terms:
            factors += [(g, None) for g in groups[name]]
        given = set(prior or {})
        for block in projection.blocks:
            latents = [latent for latent in program.latents if latent.size and latent.where.start in block.where]
            candidates = groups[latents[0].name] if len(latents) == 1 and latents[0].name not in given else ()
            numbers = sum(g.factors.count * g.factors.field_size for g in candidates)
            if revisited and not block.how.startswith("exact") and numbers == len(block.where):
                factors += [(g, block) for g in candidates]
            else:
                blocks.append(block)
        return Prior(blocks, factors)

    def _projection(self, call: Call, priors: Mapping[str, Distribution] | None) -> Projection:
        if priors:
            return call.program.project_prior(call.shared, priors)
        kept = call.entry.projection
        if kept is None or not _same(kept[0], call.shared):
            kept = ([np.array(a) for a in call.shared], call.program.project_prior(call.shared))
            call.entry.projection = kept
        return kept[1]

    def start(self, call: Call, prior: GivenPrior, revisited: bool) -> tuple[Prior, Start]:
        """Computes the prior, and the belief before any row in new buffers. The arguments are those of ``prior``."""
        _refuse_traced(call)
        with _PROGRAMS.lock, call.entry.lock:
            kept = call.entry.start.get(revisited)
            if prior or kept is None or not _same(kept[0], call.shared):
                program = call.program
                blocks = self.prior(call, prior, revisited)
                sampler = program.prior_sampler(call.shared, prior if isinstance(prior, Mapping) else None)
                inputs = program.prior_inputs(call.shared)
                first = begin(program.family, program.size, program.dtype, blocks, inputs, sampler)
                refuse_improper(program, first)
                kept = ([np.array(a) for a in call.shared], (blocks, first))
                if not prior:
                    call.entry.start[revisited] = kept
        blocks, first = kept[1]
        # copied, because a caller may donate its state to a compiled function, which frees the buffers
        return blocks, jax.tree.map(jnp.copy, first)

    # ------------------------------------------------------------------------------------------ states

    def refuse_foreign(self, state: Any, program: Program) -> None:
        """Refuses a state that belongs to another model, family, dtype or layout of the latents."""
        refuse_foreign(getattr(state, "fingerprint", None), state.belief.mean.shape[-1], program)

    def program_of(self, state: Any) -> Program:
        """Returns the program that a state belongs to.

        Raises:
            ModelError: When nothing has been read yet, or the state belongs to another model.
        """
        if self.latest is None:
            raise ModelError("The model has not been read yet: call init or explain with data first.")
        self.refuse_foreign(state, self.latest)
        return self.latest


def refuse_foreign(fingerprint: str | None, size: int, program: Program) -> None:
    """Refuses a state of another program, with a message that names the differences."""
    if fingerprint is None or fingerprint == program.fingerprint:
        if size != program.size:
            raise ModelError(
                f"The state has {size} numbers and the model has {program.size}: it belongs to another model."
            )
        return
    raise ModelError(
        f"The state belongs to another learner: {program.differences(fingerprint)}. Call init again, or start from "
        "the state's posterior: prior=learner.get_posterior(state), where learner is the one that made the state."
    )


def refuse_improper(program: Program, first: Start) -> None:
    """Refuses an initial belief that the dtype cannot express, with a message that names the latents."""
    mean = np.asarray(first.belief.mean)
    sd = np.asarray(program.family.spread(first.belief, program.size))
    unknown = np.isnan(mean) | np.isnan(sd)
    gaussian = np.isfinite(mean) & np.isfinite(sd) & (sd > 0)  # a native belief may have an infinite moment, or be sure
    for latent in program.latents:
        at = latent.where
        if unknown[at].any() or (latent.native is None and not gaussian[at].all()):
            raise PriorError(
                f"The belief before any row is not proper in {np.dtype(program.dtype)}: latent {latent.name!r} has the "
                f"mean {mean[at][0]:.4g} and the standard deviation {sd[at][0]:.4g}. Its prior, or that of a latent "
                "above it, is too wide or too narrow for the dtype. Use a prior of a realistic scale, or float64 "
                "(jax_enable_x64)."
            )


def posterior_blocks(program: Program, prior: Posterior) -> list[Block]:
    """Converts another posterior's belief to this program's order of latents."""
    theirs = {latent.name: latent for latent in prior.latents}
    order = []
    for latent in program.latents:
        other = theirs.get(latent.name)
        if other is None or other.unconstrained_shape != latent.unconstrained_shape:
            shape = None if other is None else other.shape
            raise ModelError(
                f"prior does not fit: latent {latent.name!r} has shape {latent.shape} in this model and {shape} in the "
                "posterior. Both models need the same latents."
            )
        if not same_space(latent, other):
            raise ModelError(
                f"prior does not fit: latent {latent.name!r} has another support in the posterior's model."
            )
        order.append(np.arange(other.where.start, other.where.stop))
    extra = set(theirs) - {latent.name for latent in program.latents}
    if extra:
        raise ModelError(f"prior does not fit: this model has no latents {sorted(extra)}.")
    back = np.argsort(np.concatenate(order))
    out = []
    for where, mean, root, *natural in prior.family.blocks(prior.belief):
        out.append(Block(back[where], mean, root, "given", natural[0] if natural else None))
    return out


def _refuse_lengths(call: Call) -> None:
    layout = call.program.layout
    names = [n for n, k in zip(layout.names, layout.kinds, strict=True) if k == "row"]
    lengths = {n: a.shape[0] for n, a in zip(names, call.rows, strict=True)}
    if not all(lengths.values()):
        raise ModelError(f"No rows: the arguments that carry them have lengths {lengths}. Pass at least one row.")
    raise ModelError(f"The arguments that carry rows differ in length: {lengths}.")


def _refuse_traced(call: Call) -> None:
    """Refuses shared arrays without values, on which the prior may depend."""
    layout = call.program.layout
    names = [n for n, k in zip(layout.names, layout.kinds, strict=True) if k == "shared"]
    traced = [n for n, a in zip(names, call.shared, strict=True) if isinstance(a, Tracer)]
    if traced:
        raise ModelError(
            f"Argument {traced[0]!r} is traced, and all rows share it: the prior is computed from the values of such "
            "arrays. Call init outside of jax.jit, vmap and scan, and only update inside; or, if the array carries "
            "rows, name it in rows=(...)."
        )


def _same(kept: Sequence[np.ndarray], shared: Sequence[DataArray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(kept, shared, strict=True))


def _takes(layout: Layout, leaves: Sequence[object], program: Program) -> bool:
    """Whether a program was read for leaves with the same fixed values, shapes and dtypes, and pinned arrays."""
    if [is_array(leaf) for leaf in leaves] != [kind != "fixed" for kind in layout.kinds]:
        return False
    rows, shared = layout.split(leaves)
    if any(a.ndim == 0 for a in rows) or layout.with_fixed(leaves) != layout:
        return False
    known = not any(isinstance(a, jax.ShapeDtypeStruct | Tracer) for a in shared)
    if known and [a.shape for a in shared] == [s.shape for s in program.shared_shapes] and not program.fits(shared):
        return False
    shapes = [(a.shape[1:], canonical_dtype(a)) for a in rows] + [(a.shape, canonical_dtype(a)) for a in shared]
    return shapes == [(like.shape, like.dtype) for like in (*program.row_shapes, *program.shared_shapes)]
