"""Published hierarchies, as users of NumPyro write them."""

# NumPyro declares a sample as an array or a number, so that pyright finds fault with every index into a latent.
# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.handlers import reparam
from numpyro.infer.reparam import LocScaleReparam, TransformReparam

from benchmarks.models_tried.regression import KLINE
from benchmarks.models_tried.simulate import drawn

Data = dict[str, Any]

# ------------------------------------------------------------------------------------------- eight schools

SCHOOLS = {
    "sigma": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
    "y": np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
}


def schools_readme(J: int, sigma: Any, y: Any = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("J", J):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)


def schools_centred(sigma: Any, y: Any = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("J", sigma.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)


def schools_noncentred(sigma: Any, y: Any = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("J", sigma.shape[0]):
        z = numpyro.sample("z", dist.Normal(0, 1))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)


@reparam(config={"theta": LocScaleReparam(0)})
def schools_reparam(sigma: Any, y: Any = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("J", sigma.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)


def schools_transform(J: int, sigma: Any, y: Any = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("J", J):
        with reparam(config={"theta": TransformReparam()}):
            theta = numpyro.sample(
                "theta", dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.transforms.AffineTransform(mu, tau))
            )
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)


def schools_data() -> Data:
    """The data of the book."""
    return {"sigma": SCHOOLS["sigma"], "y": SCHOOLS["y"]}


def schools_readme_data() -> Data:
    return {"J": 8, **schools_data()}


# ------------------------------------------------------------------------------------------------- radon


def radon_pooled(floor: Any, log_radon: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 10))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("houses", floor.shape[0]):
        numpyro.sample("log_radon", dist.Normal(alpha + beta * floor, sigma), obs=log_radon)


def radon_unpooled(county: Any, floor: Any, log_radon: Any = None, n_counties: int = 85) -> None:
    with numpyro.plate("counties", n_counties):
        alpha = numpyro.sample("alpha", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 10))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("houses", county.shape[0]):
        numpyro.sample("log_radon", dist.Normal(alpha[county] + beta * floor, sigma), obs=log_radon)


def radon_centred(county: Any, floor: Any, log_radon: Any = None, n_counties: int = 85) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("counties", n_counties):
        alpha = numpyro.sample("alpha", dist.Normal(mu, tau))
    beta = numpyro.sample("beta", dist.Normal(0, 10))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("houses", county.shape[0]):
        numpyro.sample("log_radon", dist.Normal(alpha[county] + beta * floor, sigma), obs=log_radon)


def radon_noncentred(county: Any, floor: Any, log_radon: Any = None, n_counties: int = 85) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("counties", n_counties):
        z = numpyro.sample("z", dist.Normal(0, 1))
    alpha = mu + tau * z
    beta = numpyro.sample("beta", dist.Normal(0, 10))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("houses", county.shape[0]):
        numpyro.sample("log_radon", dist.Normal(alpha[county] + beta * floor, sigma), obs=log_radon)


def radon_slopes(county: Any, floor: Any, log_radon: Any = None, n_counties: int = 85) -> None:
    mu_a = numpyro.sample("mu_a", dist.Normal(0, 1))
    sigma_a = numpyro.sample("sigma_a", dist.HalfNormal(1))
    mu_b = numpyro.sample("mu_b", dist.Normal(0, 1))
    sigma_b = numpyro.sample("sigma_b", dist.HalfNormal(1))
    with numpyro.plate("counties", n_counties):
        a = numpyro.sample("a", dist.Normal(mu_a, sigma_a))
        b = numpyro.sample("b", dist.Normal(mu_b, sigma_b))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("houses", county.shape[0]):
        numpyro.sample("log_radon", dist.Normal(a[county] + b[county] * floor, sigma), obs=log_radon)


def radon_group_predictor(county: Any, floor: Any, uranium: Any, log_radon: Any = None) -> None:
    gamma = numpyro.sample("gamma", dist.Normal(0, 10).expand([2]))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("counties", uranium.shape[0]):
        alpha = numpyro.sample("alpha", dist.Normal(gamma[0] + gamma[1] * uranium, tau))
    beta = numpyro.sample("beta", dist.Normal(0, 10))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("houses", county.shape[0]):
        numpyro.sample("log_radon", dist.Normal(alpha[county] + beta * floor, sigma), obs=log_radon)


def _houses() -> Data:
    rng = np.random.default_rng(60)
    sizes = np.arange(1.0, 86.0) ** -0.9
    extra = rng.choice(85, 919 - 85, p=sizes / sizes.sum())
    county = np.sort(np.concatenate([np.arange(85), extra]))
    return {"county": county, "floor": rng.binomial(1, 0.17, 919).astype(float)}


def radon_data() -> Data:
    return drawn(radon_centred, 61, {"mu": 1.5, "tau": 0.32, "beta": -0.66, "sigma": 0.73}, "log_radon", **_houses())


def radon_pooled_data() -> Data:
    data = radon_data()
    return {"floor": data["floor"], "log_radon": data["log_radon"]}


def radon_slopes_data() -> Data:
    values = {"mu_a": 1.5, "sigma_a": 0.32, "mu_b": -0.66, "sigma_b": 0.3, "sigma": 0.73}
    return drawn(radon_slopes, 62, values, "log_radon", **_houses())


def radon_group_data() -> Data:
    uranium = np.random.default_rng(63).normal(0.0, 0.37, 85)
    values = {"gamma": [1.47, 0.72], "tau": 0.15, "beta": -0.67, "sigma": 0.76}
    return drawn(radon_group_predictor, 63, values, "log_radon", uranium=uranium, **_houses())


def from_z(centre: str, scale: str, noncentred: str, centred: str) -> Any:
    """The map from draws of standardised effects to draws of the effects."""

    def to_centred(draws: dict[str, Any]) -> dict[str, Any]:
        return {**draws, centred: draws[centre][..., None] + draws[scale][..., None] * draws[noncentred]}

    return to_centred


# ------------------------------------------------------------------------------------- repeated measurements


def osic_unique(patient: Any, weeks: Any, fvc: Any = None) -> None:
    mu_a = numpyro.sample("mu_a", dist.Normal(0.0, 500.0))
    sigma_a = numpyro.sample("sigma_a", dist.HalfNormal(100.0))
    mu_b = numpyro.sample("mu_b", dist.Normal(0.0, 3.0))
    sigma_b = numpyro.sample("sigma_b", dist.HalfNormal(3.0))
    n_patients = len(np.unique(patient))
    with numpyro.plate("patients", n_patients):
        a = numpyro.sample("a", dist.Normal(mu_a, sigma_a))
        b = numpyro.sample("b", dist.Normal(mu_b, sigma_b))
    sigma = numpyro.sample("sigma", dist.HalfNormal(100.0))
    mean = a[patient] + b[patient] * weeks
    with numpyro.plate("data", len(patient)):
        numpyro.sample("fvc", dist.Normal(mean, sigma), obs=fvc)


def osic(patient: Any, weeks: Any, n_patients: int, fvc: Any = None) -> None:
    mu_a = numpyro.sample("mu_a", dist.Normal(0.0, 1.0))
    sigma_a = numpyro.sample("sigma_a", dist.HalfNormal(1.0))
    mu_b = numpyro.sample("mu_b", dist.Normal(0.0, 1.0))
    sigma_b = numpyro.sample("sigma_b", dist.HalfNormal(1.0))
    with numpyro.plate("patients", n_patients):
        a = numpyro.sample("a", dist.Normal(mu_a, sigma_a))
        b = numpyro.sample("b", dist.Normal(mu_b, sigma_b))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    mean = a[patient] + b[patient] * weeks
    with numpyro.plate("data", len(patient)):
        numpyro.sample("fvc", dist.Normal(mean, sigma), obs=fvc)


def osic_data() -> Data:
    patient = np.repeat(np.arange(176), 9)[:1549]
    weeks = np.random.default_rng(64).uniform(-1.0, 1.5, 1549)
    values = {"mu_a": 0.0, "sigma_a": 1.0, "mu_b": -0.15, "sigma_b": 0.2, "sigma": 0.2}
    return drawn(osic, 64, values, "fvc", patient=patient, weeks=weeks, n_patients=176)


def osic_unique_data() -> Data:
    data = osic_data()
    return {"patient": data["patient"], "weeks": 50 * data["weeks"], "fvc": 2700 + 800 * data["fvc"]}


def rats(rat: Any, x: Any, y: Any = None, n_rats: int = 30) -> None:
    mu_alpha = numpyro.sample("mu_alpha", dist.Normal(250, 100))
    mu_beta = numpyro.sample("mu_beta", dist.Normal(0, 100))
    sigma_alpha = numpyro.sample("sigma_alpha", dist.HalfCauchy(25))
    sigma_beta = numpyro.sample("sigma_beta", dist.HalfCauchy(5))
    sigma_y = numpyro.sample("sigma_y", dist.HalfCauchy(10))
    with numpyro.plate("rats", n_rats):
        alpha = numpyro.sample("alpha", dist.Normal(mu_alpha, sigma_alpha))
        beta = numpyro.sample("beta", dist.Normal(mu_beta, sigma_beta))
    with numpyro.plate("weights", rat.shape[0]):
        numpyro.sample("y", dist.Normal(alpha[rat] + beta[rat] * (x - 22.0), sigma_y), obs=y)


def rats_data() -> Data:
    values = {"mu_alpha": 242, "mu_beta": 6.2, "sigma_alpha": 14.6, "sigma_beta": 0.5, "sigma_y": 6.1}
    age = np.tile([8.0, 15.0, 22.0, 29.0, 36.0], 30)
    return drawn(rats, 65, values, "y", rat=np.repeat(np.arange(30), 5), x=age)


def rats_wide(y: Any, x: Any) -> None:
    mu_alpha = numpyro.sample("mu_alpha", dist.Normal(250, 100))
    mu_beta = numpyro.sample("mu_beta", dist.Normal(0, 100))
    sigma_alpha = numpyro.sample("sigma_alpha", dist.HalfCauchy(25))
    sigma_beta = numpyro.sample("sigma_beta", dist.HalfCauchy(5))
    sigma_y = numpyro.sample("sigma_y", dist.HalfCauchy(10))
    with numpyro.plate("rats", y.shape[0], dim=-2):
        alpha = numpyro.sample("alpha", dist.Normal(mu_alpha, sigma_alpha))
        beta = numpyro.sample("beta", dist.Normal(mu_beta, sigma_beta))
        with numpyro.plate("times", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Normal(alpha + beta * (x - 22.0), sigma_y), obs=y)


def rats_wide_data() -> Data:
    data = rats_data()
    return {"y": data["y"].reshape(30, 5), "x": data["x"][:5]}


def sleepstudy(subject: Any, days: Any, reaction: Any = None, n_subjects: int = 18) -> None:
    mu = numpyro.sample("mu", dist.Normal(jnp.array([250.0, 10.0]), jnp.array([100.0, 20.0])).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(jnp.array([50.0, 20.0])).to_event(1))
    L = numpyro.sample("L", dist.LKJCholesky(2, concentration=2.0))
    with numpyro.plate("subjects", n_subjects):
        effect = numpyro.sample("effect", dist.MultivariateNormal(mu, scale_tril=tau[:, None] * L))
    sigma = numpyro.sample("sigma", dist.HalfNormal(50))
    with numpyro.plate("rows", subject.shape[0]):
        mean = effect[subject, 0] + effect[subject, 1] * days
        numpyro.sample("reaction", dist.Normal(mean, sigma), obs=reaction)


def sleepstudy_data() -> Data:
    subject, days = np.repeat(np.arange(18), 10), np.tile(np.arange(10.0), 18)
    values = {"mu": [251, 10.5], "tau": [24.0, 6.0], "L": [[1.0, 0.0], [0.07, 0.9975]], "sigma": 25.6}
    return drawn(sleepstudy, 66, values, "reaction", subject=subject, days=days)


def cafes(cafe: Any, afternoon: Any, wait: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(5, 2))
    b = numpyro.sample("b", dist.Normal(-1, 0.5))
    sigma_cafe = numpyro.sample("sigma_cafe", dist.Exponential(1).expand([2]))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    Rho = numpyro.sample("Rho", dist.LKJ(2, concentration=2))
    cov = jnp.outer(sigma_cafe, sigma_cafe) * Rho
    a_cafe_b_cafe = numpyro.sample("a_cafe,b_cafe", dist.MultivariateNormal(jnp.stack([a, b]), cov).expand([20]))
    a_cafe, b_cafe = a_cafe_b_cafe[:, 0], a_cafe_b_cafe[:, 1]
    mu = a_cafe[cafe] + b_cafe[cafe] * afternoon
    numpyro.sample("wait", dist.Normal(mu, sigma), obs=wait)


def cafes_data() -> Data:
    cafe, afternoon = np.repeat(np.arange(20), 10), np.tile([0.0, 1.0], 100)
    values = {"a": 3.5, "b": -1.0, "sigma_cafe": [1.0, 0.5], "sigma": 0.5, "Rho": [[1.0, -0.7], [-0.7, 1.0]]}
    return drawn(cafes, 67, values, "wait", cafe=cafe, afternoon=afternoon)


def pilots(group: Any, scenario: Any, y: Any = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    sigma_a = numpyro.sample("sigma_a", dist.Uniform(0, 100))
    sigma_b = numpyro.sample("sigma_b", dist.Uniform(0, 100))
    sigma_y = numpyro.sample("sigma_y", dist.Uniform(0, 100))
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(0, sigma_a))
    with numpyro.plate("scenarios", 8):
        b = numpyro.sample("b", dist.Normal(0, sigma_b))
    with numpyro.plate("rows", group.shape[0]):
        numpyro.sample("y", dist.Normal(mu + a[group] + b[scenario], sigma_y), obs=y)


def pilots_data() -> Data:
    group, scenario = np.tile(np.arange(5), 8), np.repeat(np.arange(8), 5)
    values = {"mu": 0.45, "sigma_a": 0.1, "sigma_b": 0.33, "sigma_y": 0.22}
    return drawn(pilots, 68, values, "y", group=group, scenario=scenario)


def orange_trees(tree: Any, age: Any, circumference: Any = None) -> None:
    beta = numpyro.sample("beta", dist.Normal(jnp.array([200.0, 700.0, 350.0]), jnp.array([50.0, 100.0, 50.0])))
    tau = numpyro.sample("tau", dist.HalfNormal(50))
    sigma = numpyro.sample("sigma", dist.HalfNormal(20))
    with numpyro.plate("trees", 5):
        u = numpyro.sample("u", dist.Normal(0, tau))
    with numpyro.plate("rows", tree.shape[0]):
        mean = (beta[0] + u[tree]) / (1 + jnp.exp(-(age - beta[1]) / beta[2]))
        numpyro.sample("circumference", dist.Normal(mean, sigma), obs=circumference)


def orange_trees_data() -> Data:
    age = np.tile([118.0, 484.0, 664.0, 1004.0, 1231.0, 1372.0, 1582.0], 5)
    values = {"beta": [192, 728, 348], "tau": 32, "sigma": 8}
    return drawn(orange_trees, 69, values, "circumference", tree=np.repeat(np.arange(5), 7), age=age)


# ---------------------------------------------------------------------------------------- binomial counts


def baseball_pooled(at_bats: Any, hits: Any = None) -> None:
    phi_prior = dist.Uniform(0, 1)
    phi = numpyro.sample("phi", phi_prior)
    num_players = at_bats.shape[0]
    with numpyro.plate("num_players", num_players):
        numpyro.sample("hits", dist.Binomial(at_bats, probs=phi), obs=hits)


def baseball_not_pooled(at_bats: Any, hits: Any = None) -> None:
    num_players = at_bats.shape[0]
    with numpyro.plate("num_players", num_players):
        phi_prior = dist.Uniform(0, 1)
        phi = numpyro.sample("phi", phi_prior)
        numpyro.sample("hits", dist.Binomial(at_bats, probs=phi), obs=hits)


def baseball_partially_pooled(at_bats: Any, hits: Any = None) -> None:
    m = numpyro.sample("m", dist.Uniform(0, 1))
    kappa = numpyro.sample("kappa", dist.Pareto(1, 1.5))
    num_players = at_bats.shape[0]
    with numpyro.plate("num_players", num_players):
        phi_prior = dist.Beta(m * kappa, (1 - m) * kappa)
        phi = numpyro.sample("phi", phi_prior)
        numpyro.sample("hits", dist.Binomial(at_bats, probs=phi), obs=hits)


def baseball_logit(at_bats: Any, hits: Any = None) -> None:
    loc = numpyro.sample("loc", dist.Normal(-1, 1))
    scale = numpyro.sample("scale", dist.HalfCauchy(1))
    num_players = at_bats.shape[0]
    with numpyro.plate("num_players", num_players):
        alpha = numpyro.sample("alpha", dist.Normal(loc, scale))
        numpyro.sample("hits", dist.Binomial(at_bats, logits=alpha), obs=hits)


def baseball_beta_binomial(at_bats: Any, hits: Any = None) -> None:
    m = numpyro.sample("m", dist.Uniform(0, 1))
    kappa = numpyro.sample("kappa", dist.Pareto(1, 1.5))
    with numpyro.plate("num_players", at_bats.shape[0]):
        numpyro.sample("hits", dist.BetaBinomial(m * kappa, (1 - m) * kappa, at_bats), obs=hits)


def baseball_data() -> Data:
    """Hits of eighteen players in their first 45 at bats in 1970 (Efron and Morris)."""
    hits = np.array([18, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 10, 10, 10, 10, 9, 8, 7])
    return {"at_bats": np.full(18, 45), "hits": hits}


def rat_tumours(n: Any, y: Any = None) -> None:
    mean = numpyro.sample("mean", dist.Beta(1, 1))
    size = numpyro.sample("size", dist.LogNormal(2.5, 1))
    with numpyro.plate("experiments", n.shape[0]):
        theta = numpyro.sample("theta", dist.Beta(mean * size, (1 - mean) * size))
        numpyro.sample("y", dist.Binomial(n, probs=theta), obs=y)


def rat_tumours_data() -> Data:
    rng = np.random.default_rng(70)
    n = rng.integers(10, 52, 71)
    return drawn(rat_tumours, 70, {"mean": 0.143, "size": 16.7}, "y", n=n)


def seeds(x1: Any, x2: Any, N: Any, r: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0, 10).expand([4]))
    tau = numpyro.sample("tau", dist.Gamma(1e-3, 1e-3))
    sigma = numpyro.deterministic("sigma", 1 / jnp.sqrt(tau))
    with numpyro.plate("plates", x1.shape[0]):
        b = numpyro.sample("b", dist.Normal(0, sigma))
        logits = alpha[0] + alpha[1] * x1 + alpha[2] * x2 + alpha[3] * x1 * x2 + b
        numpyro.sample("r", dist.Binomial(N, logits=logits), obs=r)


def seeds_half_normal(x1: Any, x2: Any, N: Any, r: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0, 1).expand([4]))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("plates", x1.shape[0]):
        b = numpyro.sample("b", dist.Normal(0, sigma))
        logits = alpha[0] + alpha[1] * x1 + alpha[2] * x2 + alpha[3] * x1 * x2 + b
        numpyro.sample("r", dist.Binomial(N, logits=logits), obs=r)


def seeds_data() -> Data:
    """The germinated seeds of Crowder (1978), as in the BUGS manual."""
    return {
        "x1": np.repeat([0.0, 1.0], [11, 10]),
        "x2": np.repeat([0.0, 1.0, 0.0, 1.0], [5, 6, 5, 5]),
        "N": np.array([39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7]),
        "r": np.array([10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3]),
    }


def surgical(n: Any, r: Any = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, 1000))
    sigmasq = numpyro.sample("sigmasq", dist.InverseGamma(0.001, 0.001))
    with numpyro.plate("hospitals", n.shape[0]):
        b = numpyro.sample("b", dist.Normal(mu, jnp.sqrt(sigmasq)))
        numpyro.sample("r", dist.Binomial(n, logits=b), obs=r)


def surgical_data() -> Data:
    """Deaths after operations in twelve hospitals, as in the BUGS manual."""
    n = np.array([47, 148, 119, 810, 211, 196, 148, 215, 207, 97, 256, 360])
    return {"n": n, "r": np.array([0, 18, 8, 46, 8, 13, 9, 31, 14, 8, 29, 24])}


def blocker(nt: Any, nc: Any, rt: Any = None, rc: Any = None) -> None:
    d = numpyro.sample("d", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("trials", nt.shape[0]):
        mu = numpyro.sample("mu", dist.Normal(0, 10))
        delta = numpyro.sample("delta", dist.Normal(d, tau))
        numpyro.sample("rc", dist.Binomial(nc, logits=mu), obs=rc)
        numpyro.sample("rt", dist.Binomial(nt, logits=mu + delta), obs=rt)


def blocker_data() -> Data:
    rng = np.random.default_rng(71)
    n, mu = rng.integers(40, 1900, 22), rng.normal(-2.2, 0.6, 22)
    return drawn(blocker, 71, {"d": -0.25, "tau": 0.13, "mu": mu}, "rt", "rc", nt=n, nc=n)


def meta_analysis(sigma: Any, y: Any = None) -> None:
    theta = numpyro.sample("theta", dist.Normal(0, 1))
    tau = numpyro.sample("tau", dist.HalfNormal(0.5))
    with numpyro.plate("trials", sigma.shape[0]):
        numpyro.sample("y", dist.Normal(theta, jnp.sqrt(tau**2 + sigma**2)), obs=y)


def meta_analysis_data() -> Data:
    sigma = np.random.default_rng(72).uniform(0.07, 0.85, 22)
    return drawn(meta_analysis, 72, {"theta": -0.25, "tau": 0.13}, "y", sigma=sigma)


def pumps(t: Any, x: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.Exponential(1.0))
    beta = numpyro.sample("beta", dist.Gamma(0.1, 1.0))
    with numpyro.plate("pumps", t.shape[0]):
        theta = numpyro.sample("theta", dist.Gamma(alpha, beta))
        numpyro.sample("x", dist.Poisson(theta * t), obs=x)


def pumps_data() -> Data:
    """Failures of ten power plant pumps (George et al., 1993), as in the BUGS manual."""
    t = np.array([94.3, 15.7, 62.9, 126.0, 5.24, 31.4, 1.05, 1.05, 2.1, 10.5])
    return {"t": t, "x": np.array([5, 1, 5, 14, 3, 19, 1, 1, 4, 22])}


def ucbadmit(dept: Any, male: Any, applications: Any, admit: Any = None) -> None:
    v_mu = numpyro.sample("v_mu", dist.Normal(0, jnp.array([4.0, 1.0])))
    sigma = numpyro.sample("sigma", dist.HalfNormal(jnp.ones(2)))
    L_Rho = numpyro.sample("L_Rho", dist.LKJCholesky(2, concentration=2))
    scale_tril = sigma[..., jnp.newaxis] * L_Rho
    # non-centered parameterization
    num_dept = len(np.unique(dept))
    z = numpyro.sample("z", dist.Normal(jnp.zeros((num_dept, 2)), 1))
    v = jnp.dot(scale_tril, z.T).T
    logits = v_mu[0] + v[dept, 0] + (v_mu[1] + v[dept, 1]) * male
    if admit is None:
        # we use a Delta site to record probs for predictive distribution
        probs = jax.nn.sigmoid(logits)
        numpyro.sample("probs", dist.Delta(probs), obs=probs)
    numpyro.sample("admit", dist.Binomial(applications, logits=logits), obs=admit)


def ucbadmit_six(dept: Any, male: Any, applications: Any, admit: Any = None) -> None:
    v_mu = numpyro.sample("v_mu", dist.Normal(0, jnp.array([4.0, 1.0])))
    sigma = numpyro.sample("sigma", dist.HalfNormal(jnp.ones(2)))
    L_Rho = numpyro.sample("L_Rho", dist.LKJCholesky(2, concentration=2))
    scale_tril = sigma[..., jnp.newaxis] * L_Rho
    z = numpyro.sample("z", dist.Normal(jnp.zeros((6, 2)), 1))
    v = jnp.dot(scale_tril, z.T).T
    logits = v_mu[0] + v[dept, 0] + (v_mu[1] + v[dept, 1]) * male
    numpyro.sample("admit", dist.Binomial(applications, logits=logits), obs=admit)


def ucbadmit_intercepts(dept: Any, male: Any, applications: Any, admit: Any = None) -> None:
    a_bar = numpyro.sample("a_bar", dist.Normal(0, 4))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("departments", 6):
        a = numpyro.sample("a", dist.Normal(a_bar, sigma))
    b = numpyro.sample("b", dist.Normal(0, 1))
    numpyro.sample("admit", dist.Binomial(applications, logits=a[dept] + b * male), obs=admit)


def ucbadmit_data() -> Data:
    """Applications to Berkeley in 1973, as in the book."""
    return {
        "dept": np.repeat(np.arange(6), 2),
        "male": np.tile([1.0, 0.0], 6),
        "applications": np.array([825, 108, 560, 25, 325, 593, 417, 375, 191, 393, 373, 341]),
        "admit": np.array([512, 89, 353, 17, 120, 202, 138, 131, 53, 94, 22, 24]),
    }


def ucbadmit_beta_binomial(gid: Any, N: Any, A: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(0, 1.5).expand([2]))
    phi = numpyro.sample("phi", dist.Exponential(1))
    theta = numpyro.deterministic("theta", phi + 2)
    pbar = jax.nn.sigmoid(a[gid])
    numpyro.sample("A", dist.BetaBinomial(pbar * theta, (1 - pbar) * theta, N), obs=A)


def ucbadmit_beta_binomial_data() -> Data:
    data = ucbadmit_data()
    return {"gid": data["male"].astype(int), "N": data["applications"], "A": data["admit"]}


def chimpanzees(actor: Any, treatment: Any, pulled_left: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(0, 1.5).expand([7]))
    b = numpyro.sample("b", dist.Normal(0, 0.5).expand([4]))
    logit_p = a[actor] + b[treatment]
    numpyro.sample("pulled_left", dist.Binomial(logits=logit_p), obs=pulled_left)


def chimpanzees_multilevel(actor: Any, block_id: Any, treatment: Any, pulled_left: Any = None) -> None:
    a_bar = numpyro.sample("a_bar", dist.Normal(0, 1.5))
    sigma_a = numpyro.sample("sigma_a", dist.Exponential(1))
    sigma_g = numpyro.sample("sigma_g", dist.Exponential(1))
    a = numpyro.sample("a", dist.Normal(a_bar, sigma_a).expand([7]))
    g = numpyro.sample("g", dist.Normal(0, sigma_g).expand([6]))
    b = numpyro.sample("b", dist.Normal(0, 0.5).expand([4]))
    logit_p = a[actor] + g[block_id] + b[treatment]
    numpyro.sample("pulled_left", dist.Binomial(logits=logit_p), obs=pulled_left)


def chimpanzees_lkj(actor: Any, block_id: Any, tid: Any, L: Any = None) -> None:
    g = numpyro.sample("g", dist.Normal(0, 1).expand([4]))
    sigma_actor = numpyro.sample("sigma_actor", dist.Exponential(1).expand([4]))
    L_Rho_actor = numpyro.sample("L_Rho_actor", dist.LKJCholesky(4, concentration=2))
    sigma_block = numpyro.sample("sigma_block", dist.Exponential(1).expand([4]))
    L_Rho_block = numpyro.sample("L_Rho_block", dist.LKJCholesky(4, concentration=2))
    z_actor = numpyro.sample("z_actor", dist.Normal(0, 1).expand([4, 7]))
    z_block = numpyro.sample("z_block", dist.Normal(0, 1).expand([4, 6]))
    alpha = numpyro.deterministic("alpha", ((sigma_actor[..., None] * L_Rho_actor) @ z_actor).T)
    beta = numpyro.deterministic("beta", ((sigma_block[..., None] * L_Rho_block) @ z_block).T)
    logit_p = g[tid] + alpha[actor, tid] + beta[block_id, tid]
    numpyro.sample("L", dist.Binomial(logits=logit_p), obs=L)


def _chimpanzees() -> Data:
    actor, block = np.repeat(np.arange(7), 72), np.tile(np.repeat(np.arange(6), 12), 7)
    return {"actor": actor, "block_id": block, "treatment": np.random.default_rng(73).integers(0, 4, 504)}


def chimpanzees_multilevel_data() -> Data:
    values = {
        "sigma_a": 2.0,
        "sigma_g": 0.2,
        "a": [-0.35, 5.0, -0.65, -0.65, -0.35, 0.6, 2.1],
        "b": [-0.1, 0.4, -0.5, 0.3],
    }
    return drawn(chimpanzees_multilevel, 73, values, "pulled_left", **_chimpanzees())


def chimpanzees_data() -> Data:
    data = chimpanzees_multilevel_data()
    return {name: data[name] for name in ("actor", "treatment", "pulled_left")}


def chimpanzees_lkj_data() -> Data:
    data = chimpanzees_multilevel_data()
    return {
        "actor": data["actor"],
        "block_id": data["block_id"],
        "tid": data["treatment"],
        "L": data["pulled_left"],
    }


def reed_frogs(tank: Any, density: Any, surv: Any = None) -> None:
    a_bar = numpyro.sample("a_bar", dist.Normal(0, 1.5))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    a = numpyro.sample("a", dist.Normal(a_bar, sigma), sample_shape=(48,))
    logit_p = a[tank]
    numpyro.sample("surv", dist.Binomial(density, logits=logit_p), obs=surv)


def reed_frogs_local(density: Any, surv: Any = None) -> None:
    a_bar = numpyro.sample("a_bar", dist.Normal(0, 1.5))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    with numpyro.plate("tanks", density.shape[0]):
        a = numpyro.sample("a", dist.Normal(a_bar, sigma))
        numpyro.sample("surv", dist.Binomial(density, logits=a), obs=surv)


def reed_frogs_local_data() -> Data:
    return drawn(reed_frogs_local, 74, {"a_bar": 1.35, "sigma": 1.6}, "surv", density=np.repeat([10, 25, 35], 16))


def reed_frogs_data() -> Data:
    return {"tank": np.arange(48), **reed_frogs_local_data()}


def bangladesh(did: Any, C: Any = None) -> None:
    a_bar = numpyro.sample("a_bar", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    a = numpyro.sample("a", dist.Normal(a_bar, sigma).expand([61]))
    numpyro.sample("C", dist.Bernoulli(logits=a[did]), obs=C)


def bangladesh_slopes(did: Any, urban: Any, C: Any = None) -> None:
    a_bar = numpyro.sample("a_bar", dist.Normal(0, 1))
    b_bar = numpyro.sample("b_bar", dist.Normal(0, 0.5))
    sigma = numpyro.sample("sigma", dist.Exponential(1).expand([2]))
    Rho = numpyro.sample("Rho", dist.LKJ(2, concentration=2))
    cov = jnp.outer(sigma, sigma) * Rho
    v = numpyro.sample("v", dist.MultivariateNormal(jnp.stack([a_bar, b_bar]), cov).expand([61]))
    numpyro.sample("C", dist.Bernoulli(logits=v[did, 0] + v[did, 1] * urban), obs=C)


def bangladesh_slopes_data() -> Data:
    rng = np.random.default_rng(75)
    sizes = rng.gamma(1.5, 1.0, 61)
    did, urban = np.sort(rng.choice(61, 1934, p=sizes / sizes.sum())), rng.binomial(1, 0.29, 1934)
    values = {"a_bar": -0.7, "b_bar": 0.7, "sigma": [0.58, 0.79], "Rho": [[1.0, -0.6], [-0.6, 1.0]]}
    return drawn(bangladesh_slopes, 75, values, "C", did=did, urban=urban.astype(float))


def bangladesh_data() -> Data:
    data = bangladesh_slopes_data()
    return {"did": data["did"], "C": data["C"]}


def kline_gp(d_mat: Any, P: Any, society: Any, T: Any = None) -> None:
    a = numpyro.sample("a", dist.Exponential(1))
    b = numpyro.sample("b", dist.Exponential(1))
    g = numpyro.sample("g", dist.Exponential(1))
    etasq = numpyro.sample("etasq", dist.Exponential(2))
    rhosq = numpyro.sample("rhosq", dist.Exponential(0.5))
    SIGMA = etasq * jnp.exp(-rhosq * jnp.square(d_mat)) + jnp.eye(10) * 0.01
    k = numpyro.sample("k", dist.MultivariateNormal(0, SIGMA))
    lambda_ = a * jnp.power(P, b) / g * jnp.exp(k[society])
    numpyro.sample("T", dist.Poisson(lambda_), obs=T)


def kline_gp_data() -> Data:
    places = np.random.default_rng(76).normal(0.0, 2.0, (10, 2))
    distances = np.sqrt(((places[:, None] - places[None]) ** 2).sum(-1))
    return {"d_mat": distances, "P": KLINE["population"], "society": np.arange(10), "T": KLINE["tools"]}


def epil(base: Any, treatment: Any, base_treatment: Any, age: Any, v4: Any, subject: Any, y: Any = None) -> None:
    a0 = numpyro.sample("a0", dist.Normal(0, 10))
    a = numpyro.sample("a", dist.Normal(0, 10).expand([5]))
    sigma_b1 = numpyro.sample("sigma_b1", dist.HalfNormal(1))
    sigma_b = numpyro.sample("sigma_b", dist.HalfNormal(1))
    with numpyro.plate("subjects", 59):
        b1 = numpyro.sample("b1", dist.Normal(0, sigma_b1))
    with numpyro.plate("visits", base.shape[0]):
        b = numpyro.sample("b", dist.Normal(0, sigma_b))
        log_rate = a0 + a[0] * base + a[1] * treatment + a[2] * base_treatment + a[3] * age + a[4] * v4
        numpyro.sample("y", dist.Poisson(jnp.exp(log_rate + b1[subject] + b)), obs=y)


def epil_data() -> Data:
    rng = np.random.default_rng(77)
    subject = np.repeat(np.arange(59), 4)
    base, treatment = rng.normal(0.0, 0.75, 59)[subject], (np.arange(59) >= 28).astype(float)[subject]
    inputs = {
        "base": base,
        "treatment": treatment,
        "base_treatment": base * treatment,
        "age": rng.normal(0.0, 0.22, 59)[subject],
        "v4": np.tile([0.0, 0.0, 0.0, 1.0], 59),
        "subject": subject,
    }
    values = {"a0": 1.6, "a": [0.9, -0.9, 0.3, 0.5, -0.1], "sigma_b1": 0.5, "sigma_b": 0.36}
    return drawn(epil, 77, values, "y", **inputs)


def dogs(shocked: Any) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([3]))
    before = jnp.cumsum(shocked, axis=1) - shocked
    avoided = jnp.arange(shocked.shape[1]) - before
    logits = beta[0] + beta[1] * avoided + beta[2] * before
    with numpyro.plate("dogs", shocked.shape[0], dim=-2), numpyro.plate("trials", shocked.shape[1], dim=-1):
        numpyro.sample("shocked", dist.Bernoulli(logits=logits), obs=shocked)


def dogs_data() -> Data:
    rng = np.random.default_rng(78)
    shocked = np.zeros((30, 25))
    for t in range(25):
        before = shocked[:, :t].sum(1)
        p = 1 / (1 + np.exp(-(1.8 - 0.35 * (t - before) - 0.2 * before)))
        shocked[:, t] = rng.uniform(size=30) < p
    return {"shocked": shocked}


# ------------------------------------------------------------------------------------------ items and pairs


def rasch(student: Any, item: Any, y: Any = None, J: int = 40, K: int = 20) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.75, 1))
    with numpyro.plate("students", J):
        alpha = numpyro.sample("alpha", dist.Normal(0, 1))
    with numpyro.plate("items", K):
        beta = numpyro.sample("beta", dist.Normal(0, 1))
    with numpyro.plate("answers", student.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=alpha[student] - beta[item] + mean), obs=y)


def two_parameter(student: Any, item: Any, y: Any = None, J: int = 100, K: int = 20) -> None:
    sigma_b = numpyro.sample("sigma_b", dist.HalfCauchy(2))
    mu_b = numpyro.sample("mu_b", dist.Normal(0, 5))
    with numpyro.plate("students", J):
        theta = numpyro.sample("theta", dist.Normal(0, 1))
    with numpyro.plate("items", K):
        a = numpyro.sample("a", dist.LogNormal(0, 0.5))
        b = numpyro.sample("b", dist.Normal(mu_b, sigma_b))
    with numpyro.plate("answers", student.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=a[item] * (theta[student] - b[item])), obs=y)


def three_parameter(student: Any, item: Any, y: Any = None, J: int = 100, K: int = 10) -> None:
    with numpyro.plate("students", J):
        theta = numpyro.sample("theta", dist.Normal(0, 1))
    with numpyro.plate("items", K):
        a = numpyro.sample("a", dist.LogNormal(0, 0.5))
        b = numpyro.sample("b", dist.Normal(0, 1))
        c = numpyro.sample("c", dist.Beta(5, 17))
    with numpyro.plate("answers", student.shape[0]):
        p = c[item] + (1 - c[item]) * jax.nn.sigmoid(a[item] * (theta[student] - b[item]))
        numpyro.sample("y", dist.Bernoulli(probs=p), obs=y)


def _answers(students: int, items: int) -> Data:
    return {"student": np.repeat(np.arange(students), items), "item": np.tile(np.arange(items), students)}


def rasch_data() -> Data:
    return drawn(rasch, 80, {"mean": 0.7}, "y", **_answers(40, 20))


def two_parameter_data() -> Data:
    return drawn(two_parameter, 81, {"mu_b": 0.0, "sigma_b": 1.0}, "y", **_answers(100, 20))


def three_parameter_data() -> Data:
    return drawn(three_parameter, 82, {}, "y", **_answers(100, 10))


def bradley_terry(player1: Any, player0: Any, y: Any = None, K: int = 20) -> None:
    sigma = numpyro.sample("sigma", dist.LogNormal(0, 0.5))
    with numpyro.plate("players", K):
        alpha = numpyro.sample("alpha", dist.Normal(0, sigma))
    with numpyro.plate("contests", player1.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=alpha[player1] - alpha[player0]), obs=y)


def bradley_terry_data() -> Data:
    first, second = np.triu_indices(20, 1)
    first, second = np.tile(first, 2), np.tile(second, 2)
    return drawn(bradley_terry, 83, {"sigma": 1.0}, "y", player1=first, player0=second)
