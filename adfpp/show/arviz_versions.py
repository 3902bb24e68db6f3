"""Hides the differences between ArviZ 0.23 (``InferenceData``) and ArviZ 1.x (``DataTree``) from other modules.

ArviZ takes about as long to import as everything else together, so it is imported inside the functions.
"""

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataArray, Dataset

SAMPLE_DIMS = ("chain", "draw")


class Group(NamedTuple):
    """One group of an ``InferenceData`` or ``DataTree``.

    Attributes:
        values: The array of each variable; ``(chain, draw, ...)`` if sampled.
        dims: Names of a variable's axes after chain and draw; None for a name that ArviZ chooses.
        sampled: Whether the first axes of the variables are chain and draw.
        coords: Values of dimensions of this group only.
    """

    values: Mapping[str, np.ndarray]
    dims: Mapping[str, Sequence[str | None]]
    sampled: bool = True
    coords: Mapping[str, object] = {}


def is_new_version() -> bool:
    """Whether ArviZ has version 1.x."""
    return int(version("arviz").split(".")[0]) >= 1


# ------------------------------------------------------------------------------------------------ containers


def inference_data(groups: Mapping[str, Group], coords: Mapping[str, object], attrs: Mapping[str, object]) -> Any:
    """An ``InferenceData`` (0.23) or a ``DataTree`` (1.x).

    Args:
        groups: The groups by name.
        coords: Values of the dimensions; a dimension without values is numbered from 0.
        attrs: Attributes of each group and of the whole, in addition to those that ArviZ writes.
    """
    datasets = {name: _dataset(group, coords, attrs) for name, group in groups.items()}
    if is_new_version():
        import xarray

        tree = xarray.DataTree.from_dict(datasets)
        tree.attrs = dict(attrs)
        return tree
    import arviz

    return arviz.InferenceData(attrs=dict(attrs), warn_on_custom_groups=False, **datasets)


def _dataset(group: Group, coords: Mapping[str, object], attrs: Mapping[str, object]) -> "Dataset":
    import arviz

    values, dims = dict(group.values), {name: list(names) for name, names in group.dims.items()}
    sample_dims = list(SAMPLE_DIMS) if group.sampled else []
    key = "sample_dims" if is_new_version() else "default_dims"
    return arviz.dict_to_dataset(
        values, coords={**coords, **group.coords}, dims=dims, attrs=dict(attrs), **{key: sample_dims}
    )


def groups(data: Any) -> list[str]:
    """Names of the groups."""
    return [name.strip("/") for name in data.groups if name != "/"] if is_new_version() else list(data.groups())


def group(data: Any, name: str) -> "Dataset":
    """One group as an ``xarray.Dataset``."""
    if name not in groups(data):
        raise KeyError(f"There is no group {name!r}; there are {groups(data)}.")
    return data[name].to_dataset() if is_new_version() else data[name]


def from_netcdf(path: str | os.PathLike[str]) -> Any:
    """Reads a file written by ``to_netcdf``."""
    import arviz

    return arviz.from_netcdf(str(path))


# ------------------------------------------------------------------------------------------------ statistics


def elpd_data(pointwise: "DataArray", k: "DataArray", effective: float, draws: int, good_k: float) -> Any:
    """Leave-one-out results in ArviZ's own form, for ``compare``, ``plot_khat`` and ``print``.

    Args:
        pointwise: ``DataArray`` of the expected log predictive density of each observation.
        k: ``DataArray`` of Pareto k̂.
        effective: Effective number of parameters.
        draws: Number of draws.
        good_k: The threshold for k̂.
    """
    total, count = float(pointwise.sum()), int(pointwise.size)
    se = float((count * np.var(pointwise.values, ddof=int(is_new_version()))) ** 0.5)  # as in each version's loo
    bad = bool((k > good_k).any())
    if is_new_version():
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


def plot(kind: str, data: Any, **options: object) -> "Figure":
    """One of ArviZ's plots as a Matplotlib figure.

    Args:
        kind: "forest", "dist" (marginals), "pair", "trace", "rank", "khat", "ppc" or "compare".
        data: The data for ArviZ's function; for "forest" also ``{run: data}``, to be drawn side by side.
        **options: The function's options by their names in ArviZ 1.x. With 0.23 only ``var_names``, "forest"'s
            ``combined`` and "ppc"'s ``num_samples`` can be used.
    """
    import arviz

    name = _PLOTS.get(kind, (f"plot_{kind}",) * 2)[is_new_version()]
    if is_new_version():
        return getattr(arviz, name)(data, backend="matplotlib", **options).viz["figure"].item()
    if kind == "forest" and isinstance(data, dict):
        data, options = list(data.values()), {"model_names": list(data), **options}
    renamed = _OLD_OPTIONS.get(kind, {})
    options = {renamed.get(option, option): value for option, value in options.items()}
    made = getattr(arviz, name)(data, backend="matplotlib", **options)
    return np.ravel(made)[0].get_figure()
