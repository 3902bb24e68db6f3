"""Resolves the calls of a learner: finds the program for their shapes, and splits them into rows and shared arrays.

All learners of a process that need the same program share it. Programs are kept in one cache of limited size, together
with everything that is computed from them once: the row check, the projected prior and the initial belief. A learner
itself stores only which leaves of its calls are rows and which are shared arrays.
"""

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpyro.distributions import Distribution

from adfpp.engine.compilation import evaluated
from adfpp.engine.families import ByLatent, Family
from adfpp.engine.tilt import Moments
from adfpp.learn.posterior import GivenPrior, Posterior
from adfpp.learn.programs import Entry, Programs, keeps_sizes
from adfpp.learn.start import Prior, Start, begin
from adfpp.learn.stream import DataArray, RowsMarked
from adfpp.model import Model, ModelError, Program, RowCheck, bind, is_array, read, same_space
from adfpp.model.arguments import Structure, refuse_overflow
from adfpp.model.closed_forms import registered_tilts
from adfpp.model.environment import Same, environment
from adfpp.model.layout import ONE_ROW
from adfpp.model.priors import Block, PriorError, Projection
from adfpp.model.sizes import SizedModel


class Call(NamedTuple):
    """A call of a learner's method, resolved.

    Attributes:
        entry: The program and the things that are computed from it.
        rows: The row arrays, in the program's order.
        shared: The shared arrays.
    """

    entry: Entry
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


_PROGRAMS = Programs()


class _Signature(NamedTuple):
    """How calls with the same structure and shapes are resolved.

    Attributes:
        entry: The program and the things that are computed from it.
        rows: The places of the row arrays among the leaves of a call, in the program's order.
        shared: The places of the shared arrays.
        counts: The places of the whole numbers that are numbers of rows.
    """

    entry: Entry
    rows: list[int]
    shared: list[int]
    counts: list[int]

    @property
    def varying(self) -> "_Varying":
        """The places whose lengths or values may change without another program."""
        return frozenset(self.rows), frozenset(self.counts)


_Varying = tuple[frozenset[int], frozenset[int]]
_NOTHING: _Varying = (frozenset(), frozenset())


@dataclass(frozen=True)
class _Number:
    """The number of a leaf, put in the place of the leaf."""

    value: int


class Session:
    """Resolves the calls of one learner.

    Args:
        model: The NumPyro model.
        rows: Names of the arguments that carry rows. When None, they are derived from the model; when empty, all data
            of a call are one row.
        moments: How tilted moments are computed.
        family: How the belief is stored, as the user gave it.

    Attributes:
        latest: The program that states of this learner belong to: that of the last ``init``, or the first one read.
    """

    def __init__(self, model: Model, rows: Sequence[str] | None, moments: Moments, family: Family | ByLatent) -> None:
        self.model, self.rows, self.moments, self.family = model, rows, moments, family
        self.latest: Program | None = None
        self._signatures: dict[Hashable, _Signature] = {}
        self._varying: dict[Structure, _Varying] = {}
        self._environments: dict[Hashable, None] = {}
        self._checks: dict[Entry, RowCheck] = {}

    # ------------------------------------------------------------------------------------------ calls

    def resolve(self, args: tuple[object, ...], kwargs: Mapping[str, object], state: Any = None) -> Call:
        """Finds the program of a call, its rows and its shared arrays. Usually this is a flatten and a look-up.

        Args:
            args: The model's arguments.
            kwargs: Its keyword arguments.
            state: The state that the call continues from, if any: its rows keep their shapes, and the sizes that the
                model has read out of its first data stay the same.
        """
        fingerprint = getattr(state, "fingerprint", None)
        leaves, treedef = jax.tree.flatten((args, kwargs))
        varying = rows_at, counts_at = self._varying.get(treedef, _NOTHING)
        key = (
            treedef,
            jax.config.jax_enable_x64,  # pyright: ignore[reportAttributeAccessIssue]
            *[
                # a table or a masked array may have the shape and dtype of an array that was taken before
                (type(a), (a.shape[1:] if i in rows_at else a.shape), a.dtype)
                if hasattr(a, "dtype")
                else (type(a) if i in counts_at else a)
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
        if known is None or not keeps_sizes(known.entry.program, fingerprint):
            known = self._learn(args, kwargs, state is not None, fingerprint)
            if known.varying == varying:
                self._signatures[key] = known
            self._varying[treedef] = known.varying
        rows, shared = [leaves[i] for i in known.rows] or [ONE_ROW], [leaves[i] for i in known.shared]
        call = Call(known.entry, rows, shared)
        length = rows[0].shape[0]
        if length == 0 or any(a.shape[0] != length for a in rows):
            _refuse_lengths(call)
        for i in known.counts:
            if leaves[i] != length:
                _refuse_count(call, leaves[i], length)
        program = known.entry.program
        if not key[1]:
            names = [n for kind in ("row", "shared") for n in program.layout.leaf_names(kind)]
            refuse_overflow(names, [leaves[i] for i in (*known.rows, *known.shared)])
        if program.pinned is not None and not call.traced and not program.fits(shared):
            _refuse_pinned(call)
        return call

    def _learn(
        self, args: tuple[object, ...], kwargs: Mapping[str, object], going_on: bool, fingerprint: str | None
    ) -> _Signature:
        """Resolves a call of a new signature, and reads the model if need be."""
        _, leaves, names, treedef = bind(self.model, args, kwargs)
        # the order of the call's own leaves among the bound ones
        flat, structure = jax.tree.flatten((args, dict(kwargs)))
        numbered = jax.tree.unflatten(structure, [_Number(i) for i in range(len(flat))])
        order = [leaf.value for leaf in bind(self.model, *numbered)[1]]
        entry = self._entry(leaves, names, treedef, args, kwargs, going_on, fingerprint)
        kinds = entry.program.layout.kinds

        def at(kind: str) -> list[int]:
            return [i for i, k in zip(order, kinds, strict=True) if k == kind]

        return _Signature(entry, at("row"), at("shared"), at("count"))

    def _entry(
        self,
        leaves: list[object],
        names: list[str],
        treedef: Structure,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        going_on: bool,
        fingerprint: str | None,
    ) -> Entry:
        x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
        request = (Same(self.model), self.rows, self.moments, self.family, x64, registered_tilts(), treedef)
        with _PROGRAMS.lock:
            now = environment(self.model)
            # a program that this learner has read stays valid for it, even if the model's environment has changed
            for seen in dict.fromkeys([now, *self._environments]):
                entry = _PROGRAMS.find((request, seen), leaves, fingerprint)
                if entry is not None:
                    break
            else:
                if going_on:
                    self._explain_mismatch(names, leaves)
                model, latest = self.model, self.latest
                if latest is not None and isinstance(latest.model, SizedModel) and latest.fingerprint == fingerprint:
                    model = latest.model  # with the sizes that its first data had
                program = read(model, args, kwargs, self.rows, self.moments, self.family)
                entry = _PROGRAMS.add((request, now), program)
            self._environments[now] = None
        self.latest = self.latest or entry.program
        return entry

    def _explain_mismatch(self, names: list[str], leaves: list[object]) -> None:
        """Raises if the rows of an argument do not have the shape of the stream's first rows."""
        if self.latest is None or self.latest.layout.whole:
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
            if check.done(call.rows, call.shared, lambda: self._projection(call, None)):
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
        # evaluated, because a user may call init in a function that is traced, and it is kept for later calls
        with _PROGRAMS.lock, call.entry.lock, evaluated():
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


def _refuse_pinned(call: Call) -> None:
    program = call.program
    assert program.pinned is not None
    names = program.layout.leaf_names("shared")
    changed = [
        n for n, a, b in zip(names, program.pinned, call.shared, strict=True) if not np.array_equal(a, np.asarray(b))
    ]
    if isinstance(program.model, SizedModel):
        raise ModelError(
            f"Argument {changed[0]!r}, which all rows share, has changed, and the model reads sizes out of its data "
            f"({program.model.in_words}). Call init again with the new argument, or use another learner."
        )
    raise ModelError(
        f"Argument {changed[0]!r}, which all rows share, has changed. The support of a latent, or a term of the prior, "
        "may depend on it: the belief is stored in the unconstrained space of the old support, and contains the old "
        "prior. Use another learner."
    )


def _refuse_count(call: Call, count: object, length: int) -> None:
    names = call.program.layout.named("count")
    raise ModelError(
        f"The arguments that carry rows have {length} rows, and {' and '.join(map(repr, names))}, which is the number "
        f"of rows, is {count}. Pass {length} with these rows."
    )


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
