"""Which family holds each latent site, and the priors of sites that are held in their own space."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpyro.distributions import constraints

from adfpp.engine.families import (
    ByLatent,
    ComponentPart,
    Family,
    GaussianPart,
    Part,
    Product,
    family_named,
    latent_family,
)
from adfpp.engine.families.product.components import own_moments
from adfpp.engine.families.product.exponential import Finite
from adfpp.model.arguments import ModelError
from adfpp.model.projection import Block, prior_draws
from adfpp.model.visit import scalar_base

_DRAWS = 4096

_SUPPORTS = {
    "gamma": "positive numbers",
    "inverse_gamma": "positive numbers",
    "inversegamma": "positive numbers",
    "lognormal": "positive numbers",
    "beta": "the unit interval",
    "dirichlet": "a simplex",
    "bernoulli": "two values",
    "categorical": "finitely many values",
}


def own_families(asked: Family | ByLatent, latents: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The families in a site's own space, ``{site: family}``; sites that are Gaussian are left out.

    Args:
        asked: What the user asked for: one family for all, or by site.
        latents: The sites that rows share, as an abstract visit saw them.

    Raises:
        ModelError: When a site's support is not that of the family asked for, or cannot be listed.
    """
    given = dict(asked.given) if isinstance(asked, ByLatent) else {}
    unknown = sorted(set(given) - set(latents))
    if unknown:
        raise ModelError(f"family names the site {unknown[0]!r}; the model's latent sites are {list(latents)}.")
    out = {}
    for name, site in latents.items():
        wanted = given.get(name)
        if site["discrete"] and 0 in jnp.shape(site["value"]):
            raise ModelError(
                f"Discrete site {name!r} has no elements (shape {jnp.shape(site['value'])}): leave it out."
            )
        if site["discrete"]:
            out[name] = _finite(name, site, wanted)
        elif wanted not in (None, "full", "diagonal", "normal", "spherical"):
            _refuse_support(name, site["fn"], wanted)
            if wanted != "lognormal":
                out[name] = latent_family(
                    wanted, int(jnp.shape(site["value"])[-1]) if wanted == "dirichlet" else 1, None
                )
    return out


def _finite(name: str, site: dict[str, Any], wanted: str | None) -> Finite:
    values = site["values"]
    if values is None:
        raise ModelError(
            f"Site {name!r} is a discrete latent variable that all rows share, and its values cannot be listed (a "
            "Poisson has no end). Give it a distribution with finitely many values, e.g. Categorical, Binomial with a "
            "fixed count, or make it continuous."
        )
    if wanted not in (None, "bernoulli", "categorical"):
        raise ModelError(
            f"Site {name!r} is discrete, and family={{{name!r}: {wanted!r}}} is not: use 'bernoulli' or 'categorical', "
            "or leave it out."
        )
    if wanted == "bernoulli" and len(values) != 2:
        raise ModelError(f"Site {name!r} has {len(values)} values, and a 'bernoulli' has two: use 'categorical'.")
    return Finite(tuple(float(v) for v in values))


def _refuse_support(name: str, fn: Any, wanted: str) -> None:
    support = scalar_base(fn).support
    fits = False
    if wanted in ("bernoulli", "categorical"):
        fits = False
    elif wanted == "dirichlet":
        fits = support is constraints.simplex
    elif wanted == "beta":
        fits = support is constraints.unit_interval or _bounds(support) == (0.0, 1.0)
    else:
        fits = support in (constraints.positive, constraints.nonnegative) or _bounds(support) == (0.0, np.inf)
    if not fits:
        raise ModelError(
            f"family={{{name!r}: {wanted!r}}} holds {_SUPPORTS[wanted]}, and site {name!r} is a "
            f"{type(scalar_base(fn)).__name__} with another support. Leave it Gaussian in unconstrained space, or "
            "transform it in the model: numpyro.deterministic of a site with that support."
        )


def _bounds(support: Any) -> tuple[float, float] | None:
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", np.inf)
    if low is None or any(isinstance(a, Tracer) or np.ndim(a) for a in (low, high)):
        return None
    return float(low), float(high)


def resolved(asked: Family | ByLatent, sites: Sequence[Any]) -> Family:
    """The family of a program: the one asked for, or a product if any site is held in its own space.

    Args:
        asked: What the user asked for.
        sites: The latent sites, each with ``own``.
    """
    if not isinstance(asked, ByLatent):
        if all(s.native is None for s in sites):
            return asked
        gaussian = {s.name: asked.name for s in sites if s.native is None}
    else:
        given = dict(asked.given)
        gaussian = {s.name: _gaussian_name(given.get(s.name, "full")) for s in sites if s.native is None}
        if len(gaussian) == len(sites) and len(set(gaussian.values())) == 1 and "spherical" not in gaussian.values():
            return family_named(next(iter(gaussian.values())))
    parts: list[Part] = []
    for name in ("full", "diagonal"):
        together = [s for s in sites if gaussian.get(s.name) == name and s.size]
        if together:
            where = np.concatenate([np.arange(s.where.start, s.where.stop) for s in together])
            parts.append(GaussianPart(tuple(s.name for s in together), family_named(name), where))
    for s in sites:
        where = np.arange(s.where.start, s.where.stop)
        if s.native is not None:
            parts.append(ComponentPart((s.name,), s.native, where, len(where) // s.native.dim))
        elif gaussian[s.name] == "spherical" and s.size:
            parts.append(GaussianPart((s.name,), family_named("spherical"), where))
    parts.sort(key=lambda p: int(p.where[0]))
    return Product(tuple(parts), asked.splitting) if isinstance(asked, ByLatent) else Product(tuple(parts))


def _gaussian_name(name: str) -> str:
    return {"normal": "diagonal", "lognormal": "diagonal"}.get(name, name)


def block_of_draws(site: Any, draws: np.ndarray, dtype: Any) -> Block:
    """The member of an own-space site's family with the expected statistics of draws ``(S, N)`` of θ."""
    family, where = site.native, np.arange(site.where.start, site.where.stop)
    values = np.asarray(draws[:, where], float).reshape(len(draws), -1, family.dim)
    least = float(jnp.finfo(dtype).tiny)
    if family.name in ("beta", "dirichlet"):  # a draw may round to the edge of the support
        values = np.clip(values, least, 1.0 - float(jnp.finfo(dtype).eps))
    elif not isinstance(family, Finite):
        values = np.clip(values, least, 1.0 / least)
    stats = np.asarray(family.stats(jnp.asarray(values, dtype)), float)
    if isinstance(family, Finite):
        # as if one more draw had been even: a value that was never drawn is not impossible
        chances = (stats.sum(0) + 1.0 / len(family.values)) / (len(draws) + 1.0)
        natural = np.log(chances) - np.log(1.0 - chances.sum(-1, keepdims=True))
    else:
        start = jnp.ones((values.shape[1], family.numbers), dtype)
        change = jnp.asarray(stats.mean(0), dtype) - family.expected(start)
        natural = np.asarray(jax.jit(family.shifted)(start, change), float)
    if not bool(np.asarray(family.proper(jnp.asarray(natural, dtype))).all()):
        _refuse_tails(site)
    return Block(where, np.zeros(len(where)), np.ones(len(where)), "marginal statistics of draws", natural)


def _refuse_tails(site: Any) -> None:
    raise ModelError(
        f"The prior of site {site.name!r} has no {site.native.name} with its expected statistics: give it a proper "
        "prior with lighter tails, or leave the site Gaussian in unconstrained space."
    )


def own_block(
    site: Any,
    log_prior: Callable[[jax.Array], jax.Array],
    theta: jax.Array,
    sampler: Callable[[jax.Array], jax.Array],
) -> Block:
    """The prior of an own-space site that depends on no other site: exactly where it is of the family.

    Args:
        site: The site.
        log_prior: ``θ -> (n,)`` its log prior, by component.
        theta: Any θ in the support.
        sampler: ``key -> θ``, a draw from the prior.
    """
    family, places = site.native, np.arange(site.where.start, site.where.stop).reshape(-1, site.native.dim)
    count = len(places)
    dtype = theta.dtype

    def at(values: jax.Array) -> jax.Array:
        """Log prior ``(n,)`` with all components at ``values (n, dim)``."""
        return log_prior(theta.at[places.reshape(-1)].set(values.reshape(-1)))

    if isinstance(family, Finite):
        levels = jnp.stack([at(jnp.full((count, 1), v, dtype)) for v in family.values], -1)
        natural, how = np.asarray(levels[:, 1:] - levels[:, :1], float), "exact"
    else:
        natural, exact = _linear(family, at, count, dtype)
        if not exact.all():
            if family.axes > 2:
                raise ModelError(
                    f"The prior of site {site.name!r} is no Dirichlet, and a simplex of {family.dim} numbers is too "
                    "large for a quadrature. Give it a Dirichlet prior, or leave it Gaussian in unconstrained space."
                )
            draws = prior_draws(sampler, _DRAWS)
            mine = draws[:, places.ravel()]
            top = np.sort(np.abs(mine), 0)[-_DRAWS // 1000 :].sum(0) / np.abs(mine).sum(0)
            if not (top < 0.3).all():
                _refuse_tails(site)  # a few draws make up the mean
            near = np.asarray(block_of_draws(site, draws, dtype).natural)
            for c in _first_of_alike(natural, exact):
                natural[c.alike] = _projected(site, at, near[c.first], c.first, dtype)
        how = "exact" if exact.all() else "moments by quadrature"
    mean, variance = family.moments(jnp.asarray(natural, dtype))
    where = np.arange(site.where.start, site.where.stop)
    return Block(where, np.asarray(mean, float).ravel(), np.sqrt(np.asarray(variance, float)).ravel(), how, natural)


def inside(sites: Sequence[Any], rng: np.random.Generator, size: int) -> np.ndarray:
    """Some θ ``(N,)`` in the support of every site."""
    theta = rng.uniform(-1.0, 1.0, size)
    for s in sites:
        if s.native is None:
            continue
        if isinstance(s.native, Finite):
            theta[s.where] = rng.choice(np.asarray(s.native.values), s.size)
        elif s.native.name == "beta":
            theta[s.where] = rng.uniform(0.2, 0.8, s.size)
        elif s.native.name == "dirichlet":
            theta[s.where] = rng.dirichlet(np.full(s.native.dim, 4.0), s.size // s.native.dim).ravel()
        else:
            theta[s.where] = rng.uniform(0.5, 1.5, s.size)
    return theta


def _linear(family: Any, at: Callable[[jax.Array], jax.Array], count: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters ``(n, numbers)`` by least squares at some points, and whether the prior is linear there."""
    rng = np.random.default_rng(6)
    if family.name == "dirichlet":
        points = rng.dirichlet(np.full(family.dim, 2.0), 16 * family.dim)
    else:
        line = np.linspace(-3.0, 3.0, 25)[:, None]
        points = 1.0 / (1.0 + np.exp(-line)) if family.name == "beta" else np.exp(line)
    points = jnp.asarray(points, dtype)
    logs = jax.jit(jax.vmap(lambda s: at(jnp.broadcast_to(s, (count, family.dim)))))(points)
    even = jnp.ones(family.numbers, dtype)
    ratio = np.asarray(logs, float) - np.asarray(family.log_prob(even, points), float)[:, None]
    features = np.concatenate([np.ones((len(points), 1)), np.asarray(family.stats(points), float)], 1)
    found = np.linalg.lstsq(features, np.where(np.isfinite(ratio), ratio, 0.0), rcond=None)[0]
    left = np.abs(ratio - features @ found).max(0)
    natural = 1.0 + found[1:].T
    tight = 1e-9 if dtype == jnp.float64 else 1e-4
    exact = (left <= tight * (1.0 + np.abs(ratio).max(0))) & (natural > 0).all(1)
    if not exact.any():
        return natural, exact
    # and where the member that was found has its mass
    members = jnp.asarray(np.where(exact[:, None], natural, 1.0), dtype)
    values = family.sample(jax.random.key(7), members, (32,))  # (32, n, dim)
    ratio = np.asarray(jax.jit(jax.vmap(at))(values), float) - np.asarray(family.log_prob(even, values), float)
    fitted = found[0] + np.einsum("snj,nj->sn", np.asarray(family.stats(values), float), found[1:].T)
    return natural, exact & (np.abs(ratio - fitted) <= 8.0 * tight * (1.0 + np.abs(ratio))).all(0)


class _Alike(NamedTuple):
    first: int
    alike: np.ndarray


def _first_of_alike(natural: np.ndarray, exact: np.ndarray) -> list[_Alike]:
    """Components that are left to be projected, those with the same prior together."""
    left = np.flatnonzero(~exact)
    if not len(left):
        return []
    _, first, back = np.unique(natural[left], axis=0, return_index=True, return_inverse=True)
    return [_Alike(int(left[f]), left[back.ravel() == i]) for i, f in enumerate(first)]


def _projected(site: Any, at: Callable[[jax.Array], jax.Array], near: np.ndarray, c: int, dtype: Any) -> np.ndarray:
    """The member with the expected statistics of component c's prior."""
    family = site.native
    count = site.size // family.dim
    start = jnp.asarray(near, dtype)

    def log_ratio(s: jax.Array) -> jax.Array:
        return at(jnp.broadcast_to(s, (count, family.dim)))[c] - family.log_prob(start, s)

    _, natural, error = jax.jit(lambda: own_moments(family, start, log_ratio))()
    if not float(error) < (1e-5 if dtype == jnp.float64 else 1e-2):
        _refuse_tails(site)
    return np.asarray(natural, float)
