"""Export to ArviZ: every group against something that this project did not write, on both ArviZ lines."""

import copy
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import arviz
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Predictive, log_likelihood
from numpyro.infer.util import potential_energy
from scipy import special, stats
from scipy.stats import multivariate_normal, norm

import adfpp
from adfpp.engine.families import Belief, family_named
from adfpp.engine.tilt import moments_named
from adfpp.judge.fits import Fit
from adfpp.learn.posterior import Posterior
from adfpp.model import read
from adfpp.show import arviz_versions
from adfpp.show.export import ExportWarning, fit_to_arviz, loo, to_arviz
from models import measurement_error
from tests.models import ROWS, logistic
from tests.products import Enumerated, Pair

pytestmark = [
    # pandas 3 on what ArviZ 0.23 (Python 3.11) does in compare
    pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame"),
    # ArviZ's own leave-one-out on the few hundred draws of NUTS that there is time for here
    pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto distribution"),
]

az: Any = arviz  # whose names and types differ between the lines
gaussian: Any = multivariate_normal  # whose stub takes no matrix
logsumexp: Any = special.logsumexp

GROUPS = {
    "posterior",
    "prior",
    "posterior_predictive",
    "prior_predictive",
    "log_likelihood",
    "log_prior",
    "observed_data",
    "constant_data",
    "unconstrained_posterior",
    "sample_stats",
    "trajectory",
}
POSTERIOR_GROUPS = GROUPS - {"trajectory"}  # of a posterior without its run
NOISE = 0.7


def regression(x: Any, y: Any = None) -> None:
    """Conjugate: every answer is known."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, NOISE), obs=y)


def grouped(x: Any, group: Any, groups: int, y: Any = None, z: Any = None) -> None:
    """Plates, transforms, an event whose unconstrained shape differs, two observations, deterministic sites."""
    w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("scale", dist.HalfNormal(1))  # these two learn nothing, which keeps the compilation short
    numpyro.sample("share", dist.Dirichlet(jnp.array([4.0, 4.0, 4.0])))
    with numpyro.plate("group", groups):
        shift: Any = numpyro.sample("shift", dist.Normal(0, 1))
    numpyro.deterministic("double", 2 * w)
    with numpyro.plate("rows", x.shape[0]):
        mean = numpyro.deterministic("mean", x @ w + shift[group])
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        numpyro.sample("z", dist.Normal(w, 0.5).to_event(1), obs=z)


def regression_data(seed: int, n: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Two columns that go together a little, so that a diagonal Gaussian is near but not exact."""
    rng = np.random.default_rng(seed)
    x = 0.5 * rng.normal(size=(n, 1)) + rng.normal(size=(n, 2))
    return x, x @ [1.0, -0.5] + NOISE * rng.normal(size=n)


def exact(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the slopes."""
    covariance = np.linalg.inv(np.eye(2) + x.T @ x / NOISE**2)
    return covariance @ x.T @ y / NOISE**2, covariance


def exact_loo(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log predictive density of each row from all others, refitted."""
    out = []
    for i in range(len(y)):
        mean, covariance = exact(np.delete(x, i, 0), np.delete(y, i))
        out.append(norm.logpdf(y[i], x[i] @ mean, np.sqrt(NOISE**2 + x[i] @ covariance @ x[i])))
    return np.array(out)


def pointwise(elpd: Any) -> np.ndarray:
    """Of each observation."""
    return elpd["elpd_i" if arviz_versions.is_new_version() else "loo_i"].values


def flat(data: Any, group: str, name: str) -> Any:
    """A variable with chain and draw as one axis."""
    a = arviz_versions.group(data, group)[name].values
    return a.reshape(-1, *a.shape[2:])


@pytest.fixture(scope="module")
def conjugate() -> Any:
    """A full Gaussian, which is exact here."""
    x, y = regression_data(3)
    adf = adfpp.ADF(regression)
    result = adf.run(jax.random.key(0), x, y=y, progress_bar=False, snapshots=8)
    return adf, result, x, y, to_arviz(result, x, y=y, num_samples=4000)


@pytest.fixture(scope="module")
def wide() -> Any:
    """The model with everything in it, and some Gaussian as its posterior: it need not be a good one."""
    rng = np.random.default_rng(4)
    x, group = rng.normal(size=(16, 2)), rng.integers(0, 4, 16)
    y, z = x @ [1.0, -1.0] + rng.normal(size=16), 0.5 * rng.normal(size=(16, 2)) + 0.3
    data: dict[str, Any] = {"y": y, "z": z}
    program = read(grouped, (x, group, 4), data, None, moments_named("auto"))
    scale = 0.3 * np.eye(program.size) + 0.05 * np.tril(rng.normal(size=(program.size, program.size)))
    belief = Belief(jnp.asarray(0.3 * rng.normal(size=program.size)), jnp.asarray(scale))
    post = Posterior(program, family_named("full"), belief)
    names = {"column": ["left", "right"], "kind": list("abc"), "group": [10, 20, 30, 40]}
    dims = {"w": ["column"], "double": ["column"], "x": ["rows", "column"], "share": ["kind"]}
    return post, (x, group, 4), data, to_arviz(post, x, group, 4, **data, coords=names, dims=dims)


@pytest.fixture(scope="module")
def against_nuts() -> Any:
    """A logistic regression by ADF and by NUTS, both in ArviZ's terms."""
    rng = np.random.default_rng(14)
    x = rng.normal(size=(ROWS, 3))
    y = (x @ [0.5, -0.5, 0.3] + rng.logistic(size=ROWS) > 0).astype(int)
    result = adfpp.ADF(logistic).run(jax.random.key(0), x, y=y, progress_bar=False, snapshots=64)
    nuts = MCMC(
        NUTS(logistic), num_warmup=200, num_samples=500, num_chains=2, chain_method="vectorized", progress_bar=False
    )
    nuts.run(jax.random.key(2), x, y=y)
    data = to_arviz(result, x, y=y, num_samples=1000, num_chains=2)  # as many as of NUTS, for plots of both
    theirs = az.from_numpyro(nuts, log_likelihood=True)
    return result, data, theirs, (x, y)


# ------------------------------------------------------------------------------------------------ densities


def test_draws_and_densities_are_the_exact_posterior(conjugate: Any) -> None:
    """Where the approximation is exact, log p − log q is the log evidence at every draw."""
    _, _, x, y, data = conjugate
    w, mean_and_covariance = flat(data, "posterior", "w"), exact(x, y)
    log_q = gaussian(*mean_and_covariance).logpdf(w)
    evidence = gaussian(np.zeros(len(y)), x @ x.T + NOISE**2 * np.eye(len(y))).logpdf(y)
    np.testing.assert_allclose(flat(data, "sample_stats", "log_q"), log_q, atol=1e-8)
    np.testing.assert_allclose(flat(data, "sample_stats", "log_p"), log_q + evidence, atol=1e-8)
    np.testing.assert_allclose(flat(data, "sample_stats", "lp"), flat(data, "sample_stats", "log_p"))
    np.testing.assert_allclose(flat(data, "log_prior", "w"), norm.logpdf(w).sum(1), atol=1e-10)
    np.testing.assert_allclose(flat(data, "log_likelihood", "y"), norm.logpdf(y, w @ x.T, NOISE), atol=1e-9)
    np.testing.assert_allclose(arviz_versions.group(data, "posterior").attrs["log_evidence"], evidence, atol=1e-8)
    sds = np.sqrt(np.diag(mean_and_covariance[1]))
    assert np.all(np.abs(w.mean(0) - mean_and_covariance[0]) < 4 * sds / np.sqrt(4000))
    np.testing.assert_allclose(w.std(0), sds, rtol=0.05)


def test_predictives_follow_the_model(conjugate: Any) -> None:
    """Prior and posterior predictive have the exact moments, and the predictive is drawn at the draw beside it."""
    _, _, x, y, data = conjugate
    mean, covariance = exact(x, y)
    drawn, w = flat(data, "posterior_predictive", "y"), flat(data, "posterior", "w")
    noise = (drawn - w @ x.T) / NOISE
    assert np.abs(noise.mean(0)).max() < 4 / np.sqrt(4000) and np.abs(noise.std(0) - 1).max() < 0.05
    assert np.abs(np.corrcoef(noise[:, :2].T)[0, 1]) < 0.06
    np.testing.assert_allclose(drawn.std(0), np.sqrt(NOISE**2 + np.einsum("ij,jk,ik->i", x, covariance, x)), rtol=0.06)
    before = flat(data, "prior_predictive", "y")
    np.testing.assert_allclose(before.std(0), np.sqrt(NOISE**2 + (x**2).sum(1)), rtol=0.06)
    assert np.abs(flat(data, "prior", "w").std(0) - 1).max() < 0.05
    assert np.abs(flat(data, "prior", "w").mean(0)).max() < 0.07


def test_everything_belongs_together_row_by_row(wide: Any) -> None:
    """The same draws in every group, by NumPyro's own functions."""
    post, args, data, exported = wide
    program = post.program
    sites = {s.name: flat(exported, "posterior", s.name) for s in program.latents}
    theirs = log_likelihood(grouped, sites, *args, **data)
    for name in ("y", "z"):
        np.testing.assert_allclose(flat(exported, "log_likelihood", name), theirs[name], atol=1e-8)
    again = Predictive(grouped, sites, return_sites=["mean", "double"])(jax.random.key(9), *args, **data)
    for name in ("mean", "double"):
        np.testing.assert_allclose(flat(exported, "posterior", name), again[name], atol=1e-10)
    free = {s.name: flat(exported, "unconstrained_posterior", s.name) for s in program.latents}
    for site in program.latents:
        np.testing.assert_allclose(site.transform(jnp.asarray(free[site.name])), sites[site.name], atol=1e-10)
    prior = {
        "w": norm.logpdf(sites["w"]).sum(1),
        "scale": norm.logpdf(sites["scale"]) + np.log(2),
        "shift": norm.logpdf(sites["shift"]),
        "share": np.asarray(dist.Dirichlet(jnp.array([4.0, 4.0, 4.0])).log_prob(jnp.asarray(sites["share"]))),
    }
    for name, expected in prior.items():
        np.testing.assert_allclose(flat(exported, "log_prior", name), expected, atol=1e-8)
    potential = jax.vmap(lambda s: potential_energy(grouped, args, data, s))(
        {name: jnp.asarray(a) for name, a in free.items()}
    )
    np.testing.assert_allclose(flat(exported, "sample_stats", "log_p"), -potential, atol=1e-8)
    extracted = az.extract(exported, var_names=["scale"])
    np.testing.assert_array_equal(extracted.values, sites["scale"])


# ------------------------------------------------------------------------------------------------ form


def test_groups_dims_and_coords(wide: Any) -> None:
    """Plates name dimensions as ArviZ infers them, beside the user's names; what is observed is not constant."""
    _, args, data, exported = wide
    assert set(arviz_versions.groups(exported)) == POSTERIOR_GROUPS
    if arviz_versions.is_new_version():
        from arviz_base.io_numpyro import infer_dims  # pyright: ignore[reportMissingImports]
    else:
        from arviz.data.io_numpyro import infer_dims
    theirs = infer_dims(grouped, args, data)
    assert theirs["shift"] == ["group"] and theirs["mean"] == ["rows"]
    groups = {name: arviz_versions.group(exported, name) for name in POSTERIOR_GROUPS}
    for name, dims in theirs.items():
        for group in ("posterior", "posterior_predictive", "observed_data", "log_likelihood"):
            if name in groups[group]:
                mine = [d for d in groups[group][name].dims if d not in arviz_versions.SAMPLE_DIMS]
                assert mine[: len(dims)] == dims, (group, name)
    for group in ("posterior", "prior", "unconstrained_posterior"):
        assert groups[group]["w"].dims == ("chain", "draw", "column")
        assert groups[group]["w"].column.values.tolist() == ["left", "right"]
        assert groups[group]["shift"].group.values.tolist() == [10, 20, 30, 40]
    assert groups["posterior"]["share"].dims[2:] == ("kind",)
    assert groups["unconstrained_posterior"]["share"].shape == (4, 250, 2)
    assert groups["log_prior"]["share"].dims == groups["log_prior"]["w"].dims == ("chain", "draw")
    assert set(groups["observed_data"].data_vars) == {"y", "z"}
    np.testing.assert_array_equal(groups["observed_data"]["z"], data["z"])
    assert set(groups["constant_data"].data_vars) == {"x", "group", "groups"}
    assert groups["constant_data"]["x"].dims == ("rows", "column")
    assert groups["constant_data"]["group"].dims == ("rows",)
    for group in groups.values():
        assert group.attrs["inference_library"] == "adfpp"
        assert group.attrs["inference_library_version"] == adfpp.__version__
        assert group.attrs["family"] == "full" and group.attrs["created_at"]


def test_trajectory_of_a_run(conjugate: Any) -> None:
    """The belief along the run, by the names of θ's numbers."""
    _, result, _, _, data = conjugate
    assert set(arviz_versions.groups(data)) == GROUPS
    trajectory = arviz_versions.group(data, "trajectory")
    assert trajectory["mean"].dims == ("step", "parameter")
    assert trajectory.parameter.values.tolist() == ["w[0]", "w[1]"]
    assert trajectory["rows"].values.tolist() == [8, 16, 24]
    np.testing.assert_allclose(trajectory["mean"][-1], result.state.belief.mean, atol=1e-10)
    np.testing.assert_allclose(trajectory["log_z"].sum(), result.info.log_z.sum(), atol=1e-9)


def test_netcdf_round_trip(conjugate: Any, tmp_path: Path) -> None:
    """Written and read back, every group is what it was."""
    exported = conjugate[-1]
    path = tmp_path / "export.nc"
    exported.to_netcdf(str(path))
    back = arviz_versions.from_netcdf(path)
    assert set(arviz_versions.groups(back)) == GROUPS
    for name in GROUPS:
        ours, theirs = arviz_versions.group(exported, name), arviz_versions.group(back, name)
        assert ours.equals(theirs), name
        assert all(theirs.attrs[k] == ours.attrs[k] for k in ("inference_library", "family", "log_evidence"))
    (back.close if hasattr(back, "close") else lambda: None)()


def test_groups_can_be_left_out(wide: Any) -> None:
    """Predictives, likelihoods and trajectory are optional, and a posterior alone is enough."""
    post, args, data, whole = wide
    lean = to_arviz(post, *args, **data, predictive=False, log_likelihood=False, num_samples=1000)
    left = {"posterior_predictive", "prior_predictive", "log_likelihood"}
    assert set(arviz_versions.groups(lean)) == POSTERIOR_GROUPS - left
    assert set(arviz_versions.group(lean, "posterior").data_vars) == {"w", "scale", "share", "shift", "double"}
    np.testing.assert_allclose(flat(lean, "sample_stats", "log_p"), flat(whole, "sample_stats", "log_p"), atol=1e-9)
    with pytest.raises(ValueError, match="export with log_likelihood=True"):
        loo(lean)
    with pytest.raises(ValueError, match="several observations"):
        loo(whole)
    with pytest.raises(ValueError, match="no observation 'u'"):
        loo(whole, "u")


def test_draws_without_data(wide: Any) -> None:
    """After a stream that is gone there are still the posterior's draws."""
    data = to_arviz(wide[0], coords={"column": ["left", "right"]}, dims={"w": ["column"]})
    assert set(arviz_versions.groups(data)) == {"posterior", "unconstrained_posterior", "sample_stats"}
    assert arviz_versions.group(data, "posterior")["w"].dims == ("chain", "draw", "column")
    np.testing.assert_allclose(flat(data, "posterior", "shift"), flat(wide[-1], "posterior", "shift"), atol=1e-12)


def test_a_run_of_a_comparison(against_nuts: Any) -> None:
    """Draws of MCMC keep their chains and are nobody's approximation; those of ADF keep their log q."""
    result, data, theirs, (x, y) = against_nuts
    theta = arviz_versions.group(theirs, "posterior")["w"].values
    nuts = fit_to_arviz(Fit("nuts", "NUTS", result.posterior.program, theta), x, y=y, predictive=False)
    np.testing.assert_array_equal(arviz_versions.group(nuts, "posterior")["w"].values, theta)
    np.testing.assert_allclose(flat(nuts, "log_likelihood", "y"), flat(theirs, "log_likelihood", "y"), atol=1e-6)
    assert set(arviz_versions.group(nuts, "sample_stats").data_vars) == {"log_p", "lp"}
    attrs = arviz_versions.group(nuts, "posterior").attrs
    assert (attrs["inference_library"], attrs["method"]) == ("numpyro", "NUTS") and "family" not in attrs
    with pytest.raises(ValueError, match="arviz.loo"):
        loo(nuts)
    draws, log_q = (arviz_versions.group(data, g)[v].values for g, v in (("posterior", "w"), ("sample_stats", "log_q")))
    fit = Fit("adf", "ADF", result.posterior.program, draws, result.posterior, log_q, source=result)
    again = fit_to_arviz(fit, x, y=y, predictive=False)
    np.testing.assert_allclose(flat(again, "sample_stats", "log_p"), flat(data, "sample_stats", "log_p"), atol=1e-9)
    attrs = arviz_versions.group(again, "posterior").attrs
    assert (attrs["inference_library"], attrs["family"]) == ("adfpp", "full") and "trajectory" in arviz_versions.groups(
        again
    )


def test_large_exports_are_announced(conjugate: Any) -> None:
    """More than a gigabyte is told before it is made (the warning is an error here, so nothing is made)."""
    _, result, x, y, _ = conjugate
    with pytest.raises(ExportWarning, match=r"takes 2\.3 GB .*log_likelihood 0\.8 GB.*num_samples"):
        to_arviz(result, x, y=y, num_samples=4_000_000)


# ------------------------------------------------------------------------------------------------ leave-one-out


@pytest.mark.parametrize("family", ["full", "diagonal"])
def test_loo_agrees_with_refitting(family: str) -> None:
    """Corrected leave-one-out is exact leave-one-out within Monte-Carlo error; plain PSIS-LOO is not."""
    x, y = regression_data(11)
    result = adfpp.ADF(regression, family=family).run(jax.random.key(0), x, y=y, progress_bar=False, snapshots=32)
    data = to_arviz(result, x, y=y, num_samples=8000)
    each = pointwise(loo(data))
    expected = exact_loo(x, y)
    assert np.abs(each - expected).max() < 0.05
    assert abs(each.sum() - expected.sum()) < 0.1
    values = flat(data, "log_likelihood", "y")
    plain = -logsumexp(-values, axis=0) + np.log(len(values))
    assert (abs(plain.sum() - expected.sum()) < 0.1) == (family == "full")


def test_loo_of_a_logistic_regression_is_that_of_quadrature(against_nuts: Any) -> None:
    """The corrected sum is that of a brute-force grid, where the posterior is not Gaussian."""
    result, data, _, (x, y) = against_nuts
    line = np.linspace(-2.5, 2.5, 41)
    w = np.stack(np.meshgrid(line, line, line, indexing="ij"), -1).reshape(-1, 3) + np.asarray(result.state.belief.mean)
    logs = -np.logaddexp(0, np.where(y == 1, -1, 1) * (w @ x.T))
    joint = norm.logpdf(w).sum(1) + logs.sum(1)
    expected = logsumexp(joint) - logsumexp(joint[:, None] - logs, axis=0)
    each = pointwise(loo(data))
    assert np.abs(each - expected).max() < 0.05
    assert abs(each.sum() - expected.sum()) < 0.15


@pytest.mark.skipif(not arviz_versions.is_new_version(), reason="ArviZ 0.23 has no leave-one-out for approximations")
def test_loo_is_that_of_arviz(against_nuts: Any) -> None:
    """The same numbers, to rounding, as ``loo_approximate_posterior``."""
    data = against_nuts[1]
    stats = arviz_versions.group(data, "sample_stats")
    theirs = az.loo_approximate_posterior(data, log_p=stats["log_p"], log_q=stats["log_q"], pointwise=True)
    ours: Any = loo(data)
    for name in ("elpd", "se", "p", "good_k"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-9)
    for name in ("n_samples", "n_data_points", "scale", "warning", "approx_posterior"):
        assert getattr(ours, name) == getattr(theirs, name), name
    np.testing.assert_allclose(ours.elpd_i, theirs.elpd_i, atol=1e-10)
    np.testing.assert_allclose(ours.pareto_k, theirs.pareto_k, atol=1e-10)
    assert str(ours) == str(theirs)


# ------------------------------------------------------------------------------------------------ ArviZ on it


def test_arviz_statistics(against_nuts: Any) -> None:
    """Summary, R-hat, ESS, intervals and comparison with NUTS: independent draws in four chains."""
    _, data, theirs, _ = against_nuts
    table = az.summary(data, var_names=["w"])
    assert len(table) == 3 and (table["r_hat"].astype(float) < 1.02).all()
    reference = az.summary(theirs, var_names=["w"])
    ours = arviz_versions.group(data, "posterior")["w"]
    nuts = arviz_versions.group(theirs, "posterior")["w"]
    assert reference.shape == table.shape
    difference = (ours.mean(("chain", "draw")) - nuts.mean(("chain", "draw"))) / nuts.std(("chain", "draw"))
    assert np.abs(difference).max() < 0.35
    assert float(np.min(az.ess(ours.values[..., 0]))) > 700
    for name in ("rhat", "ess", "hdi"):
        assert getattr(az, name)(data, var_names=["w"])["w"].size in (3, 6)
    assert az.extract(data, keep_dataset=True)["w"].sizes == {"w_dim_0": 3, "sample": 1000}
    elpd, exact_one = loo(data), az.loo(theirs, pointwise=True)
    compared = az.compare({"adf": elpd, "nuts": exact_one})
    assert set(compared.index) == {"adf", "nuts"}
    total = "elpd" if arviz_versions.is_new_version() else "elpd_loo"
    assert abs(elpd[total] - exact_one[total]) < 0.4
    assert "good" in str(elpd)


def test_arviz_plots(against_nuts: Any, conjugate: Any) -> None:
    """The plots that a user reaches for, on this line's own terms."""
    _, data, theirs, _ = against_nuts
    elpd = loo(data)
    compared = az.compare({"adf": elpd, "nuts": az.loo(theirs, pointwise=True)})
    drawn = {
        kind: arviz_versions.plot(kind, data, var_names=["w"]) for kind in ("forest", "dist", "pair", "trace", "rank")
    }
    drawn["runs"] = arviz_versions.plot("forest", {"adf": data, "nuts": theirs}, var_names=["w"], combined=True)
    drawn["khat"] = arviz_versions.plot("khat", elpd)
    drawn["compare"] = arviz_versions.plot("compare", compared)
    drawn["ppc"] = arviz_versions.plot("ppc", conjugate[-1], num_samples=20)
    for kind, figure in drawn.items():
        figure.canvas.draw()
        assert figure.axes, kind
        assert any(a.lines or a.collections or a.patches for a in figure.axes), kind
    plt.close("all")


# ------------------------------------------------------------------------------------------------ starts and streams


def test_posterior_as_prior_is_the_prior(conjugate: Any) -> None:
    """A run begun from a posterior has that posterior as its prior, in draws and in densities."""
    adf, result, x, y, _ = conjugate
    second, labels = regression_data(8)
    for begin in ({"prior": result.posterior}, {"state": result.state}):
        on = adf.run(jax.random.key(0), second, y=labels, progress_bar=False, snapshots=32, **begin)
        data = to_arviz(on, second, y=labels, num_samples=1000)
        mean, covariance = exact(x, y)
        np.testing.assert_allclose(
            flat(data, "log_prior", "prior"),
            gaussian(mean, covariance).logpdf(flat(data, "posterior", "w")),
            atol=1e-8,
        )
        ratio = flat(data, "sample_stats", "log_p") - flat(data, "sample_stats", "log_q")
        predicted = gaussian(second @ mean, second @ covariance @ second.T + NOISE**2 * np.eye(len(labels)))
        np.testing.assert_allclose(ratio, predicted.logpdf(labels), atol=1e-8)
        np.testing.assert_allclose(flat(data, "prior", "w").std(0), np.sqrt(np.diag(covariance)), rtol=0.1)
    explicit = to_arviz(adf.get_posterior(on), second, y=labels, prior=result.posterior)
    np.testing.assert_allclose(flat(explicit, "sample_stats", "log_p"), flat(data, "sample_stats", "log_p"), atol=1e-9)


def test_other_priors_of_a_run_are_the_prior(conjugate: Any) -> None:
    """A prior given by site takes the model's place in the prior group and in log p."""
    adf, _, x, y, _ = conjugate
    prior = {"w": dist.Normal(1.0, 0.2)}
    result = adf.run(jax.random.key(0), x, y=y, prior=prior, progress_bar=False, snapshots=32)
    data = to_arviz(result, x, y=y)
    assert np.abs(flat(data, "prior", "w").mean(0) - 1).max() < 0.03
    expected = norm.logpdf(flat(data, "posterior", "w"), 1.0, 0.2).sum(1)
    np.testing.assert_allclose(flat(data, "log_prior", "w"), expected, atol=1e-9)
    ratio = flat(data, "sample_stats", "log_p") - flat(data, "sample_stats", "log_q")
    np.testing.assert_allclose(ratio, result.info.log_z.sum(), atol=1e-8)


def test_trajectory_is_made_afterwards_when_it_was_not_kept(conjugate: Any) -> None:
    """The run is folded again, in its own order, and the steps are the exact beliefs after those rows."""
    adf, _, x, y, _ = conjugate
    result = adf.run(jax.random.key(3), x, y=y, shuffle=True, progress_bar=False)
    trajectory = arviz_versions.group(to_arviz(result, x, y=y, predictive=False), "trajectory")
    assert trajectory["rows"].values.tolist() == list(range(1, 25))
    order = result.run.order
    assert order is not None
    for step in (0, 11, 23):
        mean, covariance = exact(x[order[: step + 1]], y[order[: step + 1]])
        np.testing.assert_allclose(trajectory["mean"][step], mean, atol=1e-8)
        np.testing.assert_allclose(trajectory["sd"][step], np.sqrt(np.diag(covariance)), atol=1e-8)
    np.testing.assert_allclose(trajectory["log_z"], result.info.log_z[order], atol=1e-9)


def test_rows_that_were_not_absorbed_are_told(conjugate: Any) -> None:
    """Another number of rows, or other rows, are not the posterior's."""
    adf, result, x, y, _ = conjugate
    with pytest.warns(ExportWarning, match="refused 24 rows and to_arviz was given 20"):
        fewer = to_arviz(result, x[:20], y=y[:20], predictive=False)
    assert "trajectory" not in arviz_versions.groups(fewer)
    unkept = adf.run(jax.random.key(0), x, y=y, progress_bar=False)
    with pytest.warns(ExportWarning, match="does not lead to the posterior"):
        other = to_arviz(unkept, x, y=-y, predictive=False)
    assert "trajectory" not in arviz_versions.groups(other)


def test_refused_rows_do_not_count(conjugate: Any) -> None:
    """A row that was refused is no part of log p; leave-one-out says what to do about it."""
    adf, _, x, y, clean = conjugate
    bad = np.vstack([x, [[np.nan, 0.0]]]), np.append(y, 0.0)
    with pytest.warns(adfpp.RowsMarked, match="1 NOT_FINITE"):
        result = adf.run(jax.random.key(0), bad[0], y=bad[1], progress_bar=False, snapshots=32)
    data = to_arviz(result, bad[0], y=bad[1], num_samples=4000, predictive=False)
    np.testing.assert_allclose(flat(data, "sample_stats", "log_p"), flat(clean, "sample_stats", "log_p"), atol=1e-8)
    with pytest.raises(ValueError, match="1 of 25 observations is not finite.*refused"):
        loo(data)


def test_moving_parameters_have_no_log_p(conjugate: Any) -> None:
    """With dynamics the rows are not independent given the last θ, so that there is no log p."""
    adf, result, x, y, _ = conjugate
    moving = copy.copy(adf)
    moving.dynamics = adfpp.RandomWalk(0.1)
    moved = type(result)(*result, replace(result.run, learner=moving))
    data = to_arviz(moved, x, y=y, dt=np.ones(len(y)), num_samples=400)
    assert set(arviz_versions.group(data, "sample_stats").data_vars) == {"log_q"}
    assert "trajectory" in arviz_versions.groups(data)
    with pytest.raises(ValueError, match="dynamics.*one-step-ahead"):
        loo(data)


@pytest.mark.slow
def test_a_drifting_stream_is_exported(conjugate: Any) -> None:
    """The same of a run with dynamics, whose trajectory is made afterwards."""
    _, _, x, y, _ = conjugate
    adf = adfpp.ADF(regression, dynamics=adfpp.RandomWalk(0.1))
    result = adf.run(jax.random.key(0), x, y=y, dt=np.ones(len(y)), progress_bar=False)
    data = to_arviz(result, x, y=y, dt=np.ones(len(y)), num_samples=400)
    assert set(arviz_versions.group(data, "sample_stats").data_vars) == {"log_q"}
    assert "trajectory" in arviz_versions.groups(data)
    with pytest.raises(ValueError, match="dynamics.*one-step-ahead"):
        loo(data)


# ------------------------------------------------------------------------------------------------ EP


@pytest.fixture(scope="module")
def visited(conjugate: Any) -> Any:
    """The result of EP."""
    _, _, x, y, _ = conjugate
    return adfpp.EP(regression).run(jax.random.key(0), x, y=y, progress_bar=False)


def test_ep_exports_its_cavities(conjugate: Any, visited: Any, tmp_path: Path) -> None:
    """Exact here: evidence, densities, leave-one-out of both kinds; and a file takes all of it."""
    _, _, x, y, streamed = conjugate
    result = visited
    data = to_arviz(result, x, y=y, num_samples=4000)
    assert set(arviz_versions.groups(data)) == GROUPS - {"trajectory"} | {"cavities"}
    attrs = arviz_versions.group(data, "posterior").attrs
    evidence = gaussian(np.zeros(len(y)), x @ x.T + NOISE**2 * np.eye(len(y))).logpdf(y)
    assert attrs["log_evidence"] == pytest.approx(evidence, abs=1e-8)
    assert (attrs["family"], attrs["sweeps"], attrs["converged"]) == ("full", result.info.sweeps, 1)
    cavities = arviz_versions.group(data, "cavities")
    assert cavities["log_z"].dims == ("rows",)
    np.testing.assert_allclose(cavities["log_z"], exact_loo(x, y), atol=1e-8)
    np.testing.assert_array_equal(cavities["status"], np.zeros(len(y)))
    np.testing.assert_allclose(flat(data, "sample_stats", "log_p") - flat(data, "sample_stats", "log_q"), evidence)
    np.testing.assert_allclose(pointwise(loo(data)), pointwise(loo(streamed)), atol=0.1)
    path = tmp_path / "ep.nc"
    data.to_netcdf(str(path))
    back = arviz_versions.from_netcdf(path)
    assert arviz_versions.group(back, "cavities").equals(cavities)
    assert arviz_versions.group(back, "posterior").attrs["converged"] == 1
    (back.close if hasattr(back, "close") else lambda: None)()


def test_what_is_not_leave_one_out_is_not_called_so(conjugate: Any, visited: Any) -> None:
    """With a power below 1 a cavity still holds part of its row."""
    _, _, x, y, _ = conjugate
    divided = copy.copy(visited.run.learner)
    divided.power = 0.5
    result = type(visited)(*visited, replace(visited.run, learner=divided))
    lean = to_arviz(result, x, y=y, predictive=False)
    assert "cavities" not in arviz_versions.groups(lean)
    assert arviz_versions.group(lean, "posterior").attrs["converged"] == 1


def test_a_trajectory_with_prior_factors_is_not_made_afterwards(conjugate: Any) -> None:
    """A state with site approximations of prior factors, which are visited between batches."""
    adf, _, x, y, _ = conjugate
    result = adf.run(jax.random.key(0), x, y=y, progress_bar=False)
    coupled = type(result)(SimpleNamespace(priors=(1,)), result.info, result.run)
    assert "trajectory" in arviz_versions.groups(to_arviz(result, x, y=y, predictive=False))
    assert "trajectory" not in arviz_versions.groups(to_arviz(coupled, x, y=y, predictive=False))


@pytest.mark.slow
def test_a_trajectory_that_cannot_be_made_afterwards_is_left_out() -> None:
    """The sites of a coupled prior are refreshed after each batch: other batches lead elsewhere."""

    def centred(group: Any, y: Any = None) -> None:
        tau: Any = numpyro.sample("tau", dist.HalfNormal(1.0))
        with numpyro.plate("groups", 3):
            u: Any = numpyro.sample("u", dist.Normal(0, tau))
        with numpyro.plate("rows", group.shape[0]):
            numpyro.sample("y", dist.Normal(u[group], 1.0), obs=y)

    group, y = np.arange(16) % 3, np.random.default_rng(1).normal(size=16)
    result = adfpp.ADF(centred).run(jax.random.key(0), group, y=y, progress_bar=False)
    assert "trajectory" not in arviz_versions.groups(to_arviz(result, group, y=y, predictive=False))


# ------------------------------------------------------------------------------------------------ errors


def test_errors_say_what_to_do(conjugate: Any) -> None:
    """What cannot be exported is refused with the cure."""
    _, result, x, y, _ = conjugate
    with pytest.raises(TypeError, match=r"adf.get_posterior\(state\)"):
        to_arviz(result.state, x, y=y)
    with pytest.raises(ValueError, match="num_samples=10 .* num_chains=4 .* take 12"):
        to_arviz(result, x, y=y, num_samples=10)
    with pytest.raises(ValueError, match=r"dims names \['v'\].*'w'"):
        to_arviz(result, x, y=y, dims={"v": ["column"]})
    with pytest.raises(ValueError, match=r"get_posterior\(result\)"):
        to_arviz(jax.tree.map(lambda a: a, result), x, y=y)

    def clash(x: Any, dims: Any = None) -> None:
        regression(x, dims)

    clashing = adfpp.ADF(clash).run(jax.random.key(0), x, dims=y, progress_bar=False)
    with pytest.raises(ValueError, match="'dims' is also an option of to_arviz; pass it by position"):
        to_arviz(clashing, x, dims=y)


def test_arviz_is_imported_late() -> None:
    """Importing the module does not import ArviZ."""
    code = "import sys, adfpp.show.export; sys.exit('arviz' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0


def test_export_of_discrete_latents(ising_results: Any, ising: Any, exact_ising: Enumerated) -> None:
    import arviz

    for name in ("adf", "ep"):
        data = adfpp.to_arviz(ising_results[name], num_samples=200, trajectory=False, **ising)
        have = set(arviz_versions.groups(data))
        assert {"posterior", "prior", "posterior_predictive", "log_likelihood", "log_prior", "sample_stats"} <= have
        assert "unconstrained_posterior" not in have
        posterior = arviz_versions.group(data, "posterior")
        sign = posterior["sign"].values
        assert sign.dtype.kind == "i" and set(np.unique(sign)) <= {0, 1}
        np.testing.assert_array_equal(posterior["w"].values, 2 * sign - 1)
        at = (sign.reshape(-1, 6) @ 2 ** np.arange(5, -1, -1)).astype(int)
        sampled = arviz_versions.group(data, "sample_stats")
        log_p = exact_ising.log_weights[at] + exact_ising.log_evidence
        np.testing.assert_allclose(sampled["log_p"].values.ravel(), log_p, atol=1e-9)
        p = np.asarray(ising_results[name].posterior.mean()["sign"], float)
        log_q = exact_ising.bits[at] @ np.log(p) + (1 - exact_ising.bits[at]) @ np.log1p(-p)
        np.testing.assert_allclose(sampled["log_q"].values.ravel(), log_q, atol=1e-7)
        log_lik = arviz_versions.group(data, "log_likelihood")["y"].values.reshape(200, 15)
        np.testing.assert_allclose(log_lik, exact_ising.log_lik[at], atol=1e-9)
        np.testing.assert_allclose(arviz_versions.group(data, "log_prior")["sign"], 6 * np.log(0.5))
        assert arviz_versions.group(data, "prior")["sign"].values.std() > 0.4
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ArviZ divides by the variance of draws that do not move
            assert "sign[1]" in arviz.summary(data, var_names=["sign"]).index


@pytest.mark.slow
def test_export_of_native_latents(pair: Pair) -> None:
    result, data = pair.result, pair.data
    found = adfpp.to_arviz(result, num_samples=200, **data)
    assert list(arviz_versions.group(found, "unconstrained_posterior").data_vars) == ["w"]
    p = arviz_versions.group(found, "posterior")["p"].values
    log_prior = arviz_versions.group(found, "log_prior")["p"].values
    prior: Any = stats.beta(2.0, 3.0)
    np.testing.assert_allclose(log_prior, prior.logpdf(p), rtol=1e-6)
    assert p.mean() == pytest.approx(pair.rate.mean(), abs=5 * pair.rate.std() / np.sqrt(200))
    assert 0 < p.min() and p.max() < 1
    path = arviz_versions.group(found, "trajectory")
    np.testing.assert_allclose(path["mean"].values[-1], [pair.rate.mean(), pair.mean.mean()], rtol=1e-6)
    assert arviz_versions.group(found, "posterior_predictive")["y"].shape[-1] == len(data["y"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:1 of 20 rows")  # one integral is marked INACCURATE
def test_observations_that_a_latent_joins_have_one_likelihood():
    """Two measurements of a row's own latent: the exported density of a row is that of their bivariate normal."""
    data = measurement_error.simulate(jax.random.key(0), 20).data
    learner = adfpp.ADF(measurement_error.model)
    result = learner.run(jax.random.key(1), progress_bar=False, **data)
    post = learner.get_posterior(result)
    idata = to_arviz(post, num_samples=50, num_chains=1, **data)
    found = np.asarray(arviz_versions.group(idata, "log_likelihood")["x_seen, y"]).reshape(50, 20)
    draws = arviz_versions.group(idata, "posterior")
    for s, (a, b) in enumerate(zip(*(np.asarray(draws[name]).reshape(50) for name in "ab"), strict=True)):
        covariance = [[1.25, b], [b, b**2 + 0.25]]  # of x ~ Normal(0, 1), and both errors 0.5
        rows = np.column_stack([data["x_seen"], data["y"]])
        np.testing.assert_allclose(found[s], gaussian([0.0, a], covariance).logpdf(rows), rtol=1e-4)
