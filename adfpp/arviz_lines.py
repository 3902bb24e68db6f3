"""What differs between ArviZ 0.23 (``InferenceData``) and ArviZ 1.x (``DataTree``); no other room knows.

ArviZ takes about as long to import as everything else together, so it is imported inside the functions.
"""

import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

SAMPLE_DIMS = ("chain", "draw")


class Group(NamedTuple):
    """One group of an ``InferenceData`` or ``DataTree``.

    Attributes:
        values: Arrays by variable; ``(chain, draw, ...)`` if sampled.
        dims: Names of a variable's axes after those of the sample, None for ArviZ's own naming.
        sampled: Whether the variables begin with chain and draw.
        coords: Values of dimensions of this group alone.
    """

    values: Mapping[str, np.ndarray]
    dims: Mapping[str, Sequence[str | None]]
    sampled: bool = True
    coords: Mapping[str, Any] = {}


def is_new_line() -> bool:
    """Whether ArviZ is of the 1.x line."""
    return int(version("arviz").split(".")[0]) >= 1


# ------------------------------------------------------------------------------------------------ containers


def inference_data(groups: Mapping[str, Group], coords: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    """An ``InferenceData`` (0.23) or a ``DataTree`` (1.x).

    Args:
        groups: Its groups by name.
        coords: Values of the dimensions, where they are not counted from 0.
        attrs: Written on each group and on the whole, beside what ArviZ writes itself.
    """
    datasets = {name: _dataset(group, coords, attrs) for name, group in groups.items()}
    if is_new_line():
        import xarray

        tree = xarray.DataTree.from_dict(datasets)
        tree.attrs = dict(attrs)
        return tree
    import arviz

    return arviz.InferenceData(attrs=dict(attrs), warn_on_custom_groups=False, **datasets)


def _dataset(group: Group, coords: Mapping[str, Any], attrs: Mapping[str, Any]) -> Any:
    import arviz

    values, dims = dict(group.values), {name: list(names) for name, names in group.dims.items()}
    sample_dims = list(SAMPLE_DIMS) if group.sampled else []
    key = "sample_dims" if is_new_line() else "default_dims"
    return arviz.dict_to_dataset(
        values, coords={**coords, **group.coords}, dims=dims, attrs=dict(attrs), **{key: sample_dims}
    )


def groups(data: Any) -> list[str]:
    """Names of the groups."""
    return [name.strip("/") for name in data.groups if name != "/"] if is_new_line() else list(data.groups())


def group(data: Any, name: str) -> Any:
    """One group as an ``xarray.Dataset``."""
    if name not in groups(data):
        raise KeyError(f"There is no group {name!r}; there are {groups(data)}.")
    return data[name].to_dataset() if is_new_line() else data[name]


def from_netcdf(path: Any) -> Any:
    """Reads a file written by ``to_netcdf``."""
    import arviz

    return arviz.from_netcdf(str(path))


# ------------------------------------------------------------------------------------------------ statistics


def psislw(log_ratios: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pareto-smoothed importance weights of independent draws, by ArviZ.

    Where there is no tail to fit, the weights come back as they are, normalised: k̂ is then 0 if the largest ratio is
    that of many draws (they are bounded, as they are of a few discrete values), and infinite if there are too few draws
    (below 25) or a ratio is NaN or +inf.

    Args:
        log_ratios: ``(..., draws)`` log importance ratios, target over proposal, up to a constant.

    Returns:
        ``(log_weights, k)``: normalised smoothed log weights ``(..., draws)`` and Pareto k̂ ``(...)``, float64.
    """
    log_ratios = np.asarray(log_ratios, np.float64)
    draws = log_ratios.shape[-1]
    flat = log_ratios.reshape(-1, draws)
    top = np.max(flat, axis=-1, keepdims=True)
    usable = np.isfinite(top[:, 0])
    weights, k = np.full(flat.shape, np.nan), np.full(len(flat), np.inf)
    weights[usable] = flat[usable] - logsumexp(flat[usable], axis=-1, keepdims=True)
    if draws >= _FEWEST:
        # ArviZ 0.23 calls a tail of equal ratios infinitely heavy, 1.x refuses it; a quarter of the tail is enough
        many = max(5, math.ceil(min(draws / 5.0, 3.0 * math.sqrt(draws)) / 4.0))
        last = np.partition(flat, -many, axis=-1)[:, -many]
        with np.errstate(invalid="ignore"):
            level = usable & (top[:, 0] - last < _EQUAL)
        k[level] = 0.0
        fit = usable & ~level
        if fit.any():
            weights[fit], k[fit] = _smoothed(flat[fit])
    return weights.reshape(log_ratios.shape), k.reshape(log_ratios.shape[:-1])


_FEWEST = 25  # a fifth of the draws is the tail, and a fit takes five numbers
_EQUAL = 1e-10  # what rounding leaves of a difference between two log densities


def _smoothed(log_ratios: np.ndarray) -> tuple[Any, Any]:
    with np.errstate(all="ignore"):  # the fit of the tail overflows on its way, without harm
        if is_new_line():
            from arviz_stats.base import array_stats  # pyright: ignore[reportMissingImports]

            # it takes the log-likelihood that was left out, which is minus a log ratio
            weights, k = array_stats.psislw(-log_ratios, r_eff=1.0)
            return weights, np.where(np.isnan(k), np.inf, k)
        import arviz

        return arviz.psislw(log_ratios)


def elpd_data(pointwise: Any, k: Any, effective: float, draws: int, good_k: float) -> Any:
    """Leave-one-out results in ArviZ's own form, as ``compare``, ``plot_khat`` and ``print`` take them.

    Args:
        pointwise: ``DataArray`` of the expected log predictive density of each observation.
        k: ``DataArray`` of Pareto k̂.
        effective: Effective number of parameters.
        draws: How many there were.
        good_k: The threshold for k̂.
    """
    total, count = float(pointwise.sum()), int(pointwise.size)
    se = float((count * np.var(pointwise.values, ddof=int(is_new_line()))) ** 0.5)  # as each line's own loo has it
    bad = bool((k > good_k).any())
    if is_new_line():
        from arviz_stats.utils import ELPDDataLOO  # pyright: ignore[reportMissingImports]

        return ELPDDataLOO(
            elpd=total,
            se=se,
            p=effective,
            n_samples=draws,
            n_data_points=count,
            scale="log",
            warning=bad,
            good_k=good_k,
            elpd_i=pointwise,
            pareto_k=k,
            approx_posterior=True,
        )
    from arviz.stats.stats_utils import ELPDData

    fields = {
        "elpd_loo": total,
        "se": se,
        "p_loo": effective,
        "n_samples": draws,
        "n_data_points": count,
        "warning": bad,
        "loo_i": pointwise.rename("loo_i"),
        "pareto_k": k.rename("pareto_shape"),
        "scale": "log",
        "good_k": good_k,
    }
    return ELPDData(data=list(fields.values()), index=list(fields))


# ------------------------------------------------------------------------------------------------ pictures

_PLOTS = {"dist": ("plot_posterior", "plot_dist"), "ppc": ("plot_ppc", "plot_ppc_dist")}
_OLD_OPTIONS = {"ppc": {"num_samples": "num_pp_samples"}}


def plot(kind: str, data: Any, **options: Any) -> Any:
    """One of ArviZ's plots as a Matplotlib figure.

    Args:
        kind: "forest", "dist" (marginals), "pair", "trace", "rank", "khat", "ppc" or "compare".
        data: What ArviZ's function takes; "forest" also takes ``{run: data}``, to be drawn side by side.
        **options: Its options by their names on ArviZ 1.x; those that 0.23 knows too are ``var_names``, "forest"'s
            ``combined`` and "ppc"'s ``num_samples``.
    """
    import arviz

    name = _PLOTS.get(kind, (f"plot_{kind}",) * 2)[is_new_line()]
    if is_new_line():
        return getattr(arviz, name)(data, backend="matplotlib", **options).viz["figure"].item()
    if kind == "forest" and isinstance(data, dict):
        data, options = list(data.values()), {"model_names": list(data), **options}
    renamed = _OLD_OPTIONS.get(kind, {})
    options = {renamed.get(option, option): value for option, value in options.items()}
    made = getattr(arviz, name)(data, backend="matplotlib", **options)
    return np.ravel(made)[0].get_figure()
