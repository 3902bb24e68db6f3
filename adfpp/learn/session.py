"""A learner's calls: each is bound to the model that was read for its shapes, and split into rows and shared arrays."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from adfpp.engine.families import ByLatent, Family, Product
from adfpp.engine.tilt import Moments
from adfpp.learn.posterior import Posterior
from adfpp.learn.start import Prior, Start, begin
from adfpp.model import (
    Layout,
    ModelError,
    PriorGroup,
    Program,
    RowCheck,
    bind,
    is_array,
    prior_groups,
    read,
    same_space,
)
from adfpp.model.priors import Block, Projection


class Plan(NamedTuple):
    """A program and what the learner has compiled for it."""

    program: Program
    compiled: Any


class _Call(NamedTuple):
    """A call's signature: its plan, and where its rows and shared arrays stand among its leaves."""

    plan: Plan
    order_rows: list[int]
    order_shared: list[int]
    rows_at: frozenset[int]


@dataclass(frozen=True)
class _Number:
    """A leaf's number, in its place."""

    value: int


class Calls:
    """Finds or makes the plan of each call, from its structure, shapes and options.

    Args:
        model: The NumPyro model.
        rows: Names of the arguments that carry rows; found from the model when None.
        moments: How tilted moments are computed.
        family: How the belief is held, as the user asked for it.
        compiled: What the learner makes of a program.

    Attributes:
        latest: The program that was read first: the one that states belong to.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        rows: Sequence[str] | None,
        moments: Moments,
        family: Family | ByLatent,
        compiled: Callable[[Program], Any],
    ) -> None:
        """Nothing is read before there is a call."""
        self.model, self.rows, self.moments, self.family, self.compiled = model, rows, moments, family, compiled
        self.latest: Program | None = None
        self._plans: dict[Any, Plan] = {}
        self._calls: dict[Any, _Call] = {}
        self._rows_at: dict[Any, frozenset[int]] = {}
        self._checks: dict[int, RowCheck] = {}
        self._projected: dict[int, tuple[list[np.ndarray], Projection]] = {}
        self._starts: dict[int, tuple[list[np.ndarray], tuple[Prior, Start]]] = {}
        self._prior_groups: dict[int, dict[str, tuple[PriorGroup, ...]]] = {}

    def planned(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], going_on: bool = False
    ) -> tuple[Plan, list[Any], list[Any]]:
        """The plan of a call, its rows and its shared arrays; the quick way is a flatten and a look-up.

        Args:
            args: The model's arguments.
            kwargs: Its keyword arguments.
            going_on: Whether the call goes on with a stream, whose rows must keep their shapes.
        """
        leaves, treedef = jax.tree.flatten((args, kwargs))
        rows_at = self._rows_at.get(treedef, frozenset())
        key = (
            treedef,
            *[
                ((a.shape[1:] if i in rows_at else a.shape), a.dtype) if hasattr(a, "dtype") else a
                for i, a in enumerate(leaves)
            ],
        )
        try:
            found = self._calls.get(key)
        except TypeError:
            bind(self.model, args, kwargs)  # names the argument if it is a kind of table
            raise TypeError(
                "An argument of the model is neither an array nor hashable; pass data as arrays and options as Python "
                "numbers, strings or tuples."
            ) from None
        if found is None:
            found = self._learn(args, kwargs, going_on)
            if found.rows_at == rows_at:
                self._calls[key] = found
            self._rows_at[treedef] = found.rows_at
        rows, shared = [leaves[i] for i in found.order_rows], [leaves[i] for i in found.order_shared]
        length = rows[0].shape[0]
        if length == 0 or any(a.shape[0] != length for a in rows):
            self._refuse_lengths(found.plan.program, rows)
        pinned = found.plan.program.pinned
        if pinned is not None and not any(isinstance(a, Tracer) for a in shared):
            if not all(np.array_equal(a, b) for a, b in zip(pinned, shared, strict=True)):
                raise ModelError(
                    "An argument that sets the support of a latent site has changed: the belief is held in that "
                    "support's unconstrained space. Use another ADF object for another support."
                )
        return found.plan, rows, shared

    def _refuse_lengths(self, program: Program, rows: Sequence[Any]) -> None:
        names = [n for n, k in zip(program.layout.names, program.layout.kinds, strict=True) if k == "row"]
        lengths = {n: a.shape[0] for n, a in zip(names, rows, strict=True)}
        if not all(lengths.values()):
            raise ModelError(f"No rows: the arguments that carry them have lengths {lengths}.")
        raise ModelError(f"The arguments that carry rows differ in length: {lengths}.")

    def _learn(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], going_on: bool) -> _Call:
        """Reads a call of a new signature."""
        bound, leaves, names, treedef = bind(self.model, args, kwargs)
        # the order of the call's own leaves among the bound ones
        flat, structure = jax.tree.flatten((args, dict(kwargs)))
        numbered = jax.tree.unflatten(structure, [_Number(i) for i in range(len(flat))])
        order = [leaf.value for leaf in bind(self.model, *numbered)[1]]
        plan = self._known_plan(leaves, treedef)
        if plan is None:
            if going_on:
                self._explain_mismatch(names, leaves)
            program = read(self.model, args, kwargs, self.rows, self.moments, self.family)
            plan = Plan(program, self.compiled(program))
            self._plans[_plan_key(program.layout, leaves)] = plan
            self._checks[id(program)] = RowCheck(program)
            self.latest = self.latest or program
        kinds = plan.program.layout.kinds

        def at(kind: str) -> list[int]:
            return [i for i, k in zip(order, kinds, strict=True) if k == kind]

        return _Call(plan, at("row"), at("shared"), frozenset(at("row")))

    def _known_plan(self, leaves: list[Any], treedef: Any) -> Plan | None:
        """The plan that takes these arguments, if some of their kind have been read before."""
        for key, plan in self._plans.items():
            layout = plan.program.layout
            if layout.treedef == treedef and _plan_key(layout, leaves) == key:
                return plan
        return None

    def _explain_mismatch(self, names: list[str], leaves: list[Any]) -> None:
        """In the middle of a stream, names the argument whose rows are not of the shape that it began with."""
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

    def check(self, program: Program, rows: Sequence[Any], shared: Sequence[Any]) -> None:
        """The numeric model check, as soon as two rows have been seen; traced rows cannot be looked at."""
        check = self._checks.get(id(program))
        if check is None or any(isinstance(a, Tracer) for a in (*rows, *shared)):
            return
        if check.done(rows, shared):
            del self._checks[id(program)]

    def prior(self, program: Program, rows: Sequence[Any], shared: Sequence[Any], prior: Any, revisited: bool) -> Prior:
        """The prior that learning starts from; the model's own is kept for the next call with the same shared arrays.

        Args:
            program: The model as it was read.
            rows: The row arrays.
            shared: The shared arrays.
            prior: A ``Posterior`` in the place of the model's prior, or ``{site: distribution}`` of some sites'.
            revisited: Whether priors that are matched by moments are factors, to be visited again, as those that depend
                on other sites always are.
        """
        found = self._prior(program, rows, shared, prior, revisited)
        if isinstance(program.family, Product):
            return found._replace(blocks=program.family.split(found.blocks))
        return found

    def _prior(
        self, program: Program, rows: Sequence[Any], shared: Sequence[Any], prior: Any, revisited: bool
    ) -> Prior:
        if isinstance(prior, Posterior):
            return Prior(self.posterior_blocks(program, prior), [])
        projection = self._projection(program, rows, shared, prior)
        if not projection.coupled and not revisited:
            return Prior(projection.blocks, [])
        groups = self.prior_groups(program, shared)
        blocks, factors = [], []
        for i in projection.coupled:
            factors += [(g, None) for g in groups[program.latents[i].name]]
        given = set(prior or {})
        for block in projection.blocks:
            mine = [s for s in program.latents if s.size and s.where.start in block.where]
            own = groups[mine[0].name] if len(mine) == 1 and mine[0].name not in given else ()
            numbers = sum(g.factors.count * g.factors.field_size for g in own)
            if revisited and not block.how.startswith("exact") and numbers == len(block.where):
                factors += [(g, block) for g in own]
            else:
                blocks.append(block)
        return Prior(blocks, factors)

    def start(
        self, program: Program, rows: Sequence[Any], shared: Sequence[Any], prior: Any, revisited: bool
    ) -> tuple[Prior, Start]:
        """The prior and the belief before any row, kept as in ``prior``, whose arguments these are."""
        kept = self._starts.get(id(program))
        if kept is not None and not prior and _same(kept[0], shared):
            return kept[1]
        found = self.prior(program, rows, shared, prior, revisited)
        sampler = program.prior_sampler(shared, prior if isinstance(prior, Mapping) else None)
        start = begin(program.family, program.size, program.dtype, found, program.prior_inputs(shared), sampler)
        if not prior:
            self._starts[id(program)] = ([np.array(a) for a in shared], (found, start))
        return found, start

    def prior_groups(self, program: Program, shared: Sequence[Any]) -> dict[str, tuple[PriorGroup, ...]]:
        """The factor groups of the model's prior, by site."""
        found = self._prior_groups.get(id(program))
        if found is None:
            found = self._prior_groups[id(program)] = prior_groups(program, shared, self.moments)
        return found

    def _projection(self, program: Program, rows: Sequence[Any], shared: Sequence[Any], priors: Any) -> Projection:
        if priors:
            return program.project_prior(shared, priors)
        kept = self._projected.get(id(program))
        if kept is None or not _same(kept[0], shared):
            kept = ([np.array(a) for a in shared], program.project_prior(shared))
            self._projected[id(program)] = kept
        return kept[1]

    @staticmethod
    def posterior_blocks(program: Program, prior: Posterior) -> list[Block]:
        """Another posterior's belief in this program's order of sites."""
        theirs = {s.name: s for s in prior.latents}
        order = []
        for site in program.latents:
            other = theirs.get(site.name)
            if other is None or other.unconstrained_shape != site.unconstrained_shape:
                shape = None if other is None else other.shape
                raise ModelError(
                    f"prior does not fit: site {site.name!r} has shape {site.shape} in this model and {shape} in the "
                    "posterior. Both models need the same latent sites."
                )
            if not same_space(site, other):
                raise ModelError(
                    f"prior does not fit: site {site.name!r} has another support in the posterior's model."
                )
            order.append(np.arange(other.where.start, other.where.stop))
        extra = set(theirs) - {s.name for s in program.latents}
        if extra:
            raise ModelError(f"prior does not fit: this model has no sites {sorted(extra)}.")
        places = np.concatenate(order)
        back = np.argsort(places)
        out = []
        for where, mean, root, *natural in prior.family.blocks(prior.belief):
            out.append(Block(back[where], mean, root, "given", natural[0] if natural else None))
        return out

    def refuse_foreign(self, size: int, program: Program) -> None:
        """A state goes on only in the unconstrained space that it was begun in."""
        if size != program.size:
            raise ModelError(f"The state holds {size} numbers, the model here {program.size}: it belongs to another.")
        begun = self.latest
        if begun is program or begun is None:
            return
        same = len(begun.latents) == len(program.latents)
        if not same or not all(
            a.name == b.name and same_space(a, b) for a, b in zip(begun.latents, program.latents, strict=True)
        ):
            raise ModelError(
                "The latent sites or their supports are not what they were at init: an argument changed their names, "
                "shapes or bounds. Begin again with init, or use another ADF object."
            )

    def posterior_program(self, size: int) -> Program:
        """The program that a state of this size belongs to.

        Raises:
            ModelError: When nothing has been read yet, or the state is of another model.
        """
        if self.latest is None:
            raise ModelError("The model has not been read yet: call init or explain with data first.")
        if size != self.latest.size:
            raise ModelError(f"The state holds {size} numbers, the model {self.latest.size}: it belongs to another.")
        return self.latest


def _same(kept: Sequence[np.ndarray], shared: Sequence[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(kept, shared, strict=True))


def _plan_key(layout: Layout, leaves: Sequence[Any]) -> Any:
    """What a program depends on: the fixed values, and the shapes of rows and shared arrays."""
    parts = []
    for leaf, kind in zip(leaves, layout.kinds, strict=True):
        if not is_array(leaf):
            parts.append(("fixed", leaf))
        else:
            dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
            parts.append((kind, leaf.shape[1:] if kind == "row" else leaf.shape, dtype))
    return (layout.treedef, *parts)
