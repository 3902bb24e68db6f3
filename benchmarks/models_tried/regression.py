"""Published regressions and simple models, as users of NumPyro write them."""

# NumPyro declares a sample as an array or a number, so that pyright finds fault with every index into a latent.
# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import OrderedTransform, SimplexToOrderedTransform

from benchmarks.models_tried.simulate import drawn, standardised

Data = dict[str, Any]

# ------------------------------------------------------------------------------------- Gaussian responses


def kidiq(mom_hs: Any, mom_iq: Any, kid_score: Any = None) -> None:
    b0 = numpyro.sample("b0", dist.Normal(80, 50))
    b_hs = numpyro.sample("b_hs", dist.Normal(0, 20))
    b_iq = numpyro.sample("b_iq", dist.Normal(0, 5))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    mu = b0 + b_hs * mom_hs + b_iq * mom_iq
    with numpyro.plate("N", mom_hs.shape[0]):
        numpyro.sample("kid_score", dist.Normal(mu, sigma), obs=kid_score)


def kidiq_data() -> Data:
    rng = np.random.default_rng(1)
    hs, iq = rng.binomial(1, 0.79, 434).astype(float), rng.normal(0.0, 15.0, 434)
    return drawn(kidiq, 1, {"b0": 82, "b_hs": 6, "b_iq": 0.56, "sigma": 18}, "kid_score", mom_hs=hs, mom_iq=iq)


def kidiq_flat(mom_hs: Any, mom_iq: Any, kid_score: Any = None) -> None:
    flat = dist.ImproperUniform(constraints.real, (), (4,))
    beta = numpyro.sample("beta", flat)
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    mu = beta[0] + beta[1] * mom_hs + beta[2] * mom_iq + beta[3] * mom_hs * mom_iq
    numpyro.sample("kid_score", dist.Normal(mu, sigma), obs=kid_score)


def howell(weight: Any, height: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(178, 20))
    b = numpyro.sample("b", dist.LogNormal(0, 1))
    sigma = numpyro.sample("sigma", dist.Uniform(0, 50))
    mu = numpyro.deterministic("mu", a + b * (weight - 45.0))
    numpyro.sample("height", dist.Normal(mu, sigma), obs=height)


def howell_data() -> Data:
    weight = np.random.default_rng(2).normal(45.0, 6.5, 352)
    return drawn(howell, 2, {"a": 154.6, "b": 0.9, "sigma": 5.1}, "height", weight=weight)


def divorce(A: Any, M: Any, D: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(0, 0.2))
    bM = numpyro.sample("bM", dist.Normal(0, 0.5))
    bA = numpyro.sample("bA", dist.Normal(0, 0.5))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    mu = numpyro.deterministic("mu", a + bM * M + bA * A)
    numpyro.sample("D", dist.Normal(mu, sigma), obs=D)


def divorce_data() -> Data:
    rng = np.random.default_rng(3)
    age = rng.normal(size=50)
    marriage = -0.7 * age + 0.7 * rng.normal(size=50)
    values = {"a": 0.0, "bM": -0.05, "bA": -0.6, "sigma": 0.8}
    return drawn(divorce, 3, values, "D", A=standardised(age), M=standardised(marriage))


def ruggedness(cid: Any, rugged_std: Any, log_gdp_std: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(1, 0.1).expand([2]))
    b = numpyro.sample("b", dist.Normal(0, 0.3).expand([2]))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    mu = numpyro.deterministic("mu", a[cid] + b[cid] * (rugged_std - 0.215))
    numpyro.sample("log_gdp_std", dist.Normal(mu, sigma), obs=log_gdp_std)


def ruggedness_data() -> Data:
    rng = np.random.default_rng(4)
    cid, rugged = rng.binomial(1, 0.71, 170), rng.beta(1.0, 3.5, 170)
    values = {"a": [0.89, 1.05], "b": [0.13, -0.14], "sigma": 0.11}
    return drawn(ruggedness, 4, values, "log_gdp_std", cid=cid, rugged_std=rugged)


def mesquite(x: Any, weight: Any = None) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 5).expand([x.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("bushes", x.shape[0]):
        numpyro.sample("weight", dist.LogNormal(x @ beta, sigma), obs=weight)


def mesquite_data() -> Data:
    rng = np.random.default_rng(5)
    size = rng.normal(0.3, 0.4, 46)
    logs = size[:, None] + rng.normal(0.0, 0.15, (46, 5))
    x = np.column_stack([np.ones(46), logs, rng.binomial(1, 0.57, 46)])
    return drawn(mesquite, 5, {"beta": [5, 0.4, 1.1, 0.4, 0.3, 0.4, -0.6], "sigma": 0.33}, "weight", x=x)


def earnings(height: Any, male: Any, log_earn: Any = None) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([4]))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(5))
    z = (height - 66.6) / 3.8
    mu = beta[0] + beta[1] * z + beta[2] * male + beta[3] * z * male
    numpyro.sample("log_earn", dist.Normal(mu, sigma), obs=log_earn)


def earnings_data() -> Data:
    rng = np.random.default_rng(6)
    male = rng.binomial(1, 0.38, 1192).astype(float)
    height = rng.normal(64.5 + 5.5 * male, 2.6)
    return drawn(earnings, 6, {"beta": [9.5, 0.06, 0.4, 0.03], "sigma": 0.88}, "log_earn", height=height, male=male)


def nes_party(x: Any, partyid7: Any = None) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 5).expand([9]))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    numpyro.sample("partyid7", dist.Normal(x @ beta, sigma), obs=partyid7)


def nes_party_data() -> Data:
    rng = np.random.default_rng(7)
    ideo, race, age = rng.integers(1, 8, 1330), rng.binomial(1, 0.15, 1330), rng.integers(0, 4, 1330)
    ages = np.eye(4)[age][:, 1:]
    rest = [rng.integers(1, 5, 1330), rng.binomial(1, 0.5, 1330), rng.integers(1, 6, 1330)]
    x = np.column_stack([np.ones(1330), ideo, race, ages, *rest]).astype(float)
    values = {"beta": [1.8, 0.49, -1.1, -0.2, -0.1, 0.05, 0.3, 0.0, 0.16], "sigma": 1.9}
    return drawn(nes_party, 7, values, "partyid7", x=x)


def sparse_blr(x: Any, y: Any = None) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([x.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(10))
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def sparse_blr_data() -> Data:
    x = np.random.default_rng(8).normal(size=(100, 5))
    return drawn(sparse_blr, 8, {"beta": [1.0, 1.0, 1.0, 1.0, 1.0], "sigma": 1.0}, "y", x=x)


def robust(x: Any, y: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([x.shape[1]]))
    sigma = numpyro.sample("sigma", dist.HalfNormal(5))
    nu = numpyro.sample("nu", dist.Gamma(2, 0.1))
    with numpyro.plate("N", x.shape[0]):
        numpyro.sample("y", dist.StudentT(nu, alpha + x @ beta, sigma), obs=y)


def robust_data() -> Data:
    x = np.random.default_rng(9).normal(size=(200, 2))
    return drawn(robust, 9, {"alpha": 1.0, "beta": [0.7, -0.4], "sigma": 0.5, "nu": 3.0}, "y", x=x)


def _diabetes() -> Data:
    from sklearn.datasets import load_diabetes

    found: Any = load_diabetes()
    return {"x": standardised(found.data), "y": standardised(found.target)}


diabetes_data = _diabetes


def ridge(x: Any, y: Any = None) -> None:
    tau = numpyro.sample("tau", dist.HalfCauchy(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    with numpyro.plate("columns", x.shape[1]):
        w = numpyro.sample("w", dist.Normal(0, tau))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, sigma), obs=y)


def lasso(x: Any, y: Any = None) -> None:
    b = numpyro.sample("b", dist.HalfCauchy(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    w = numpyro.sample("w", dist.Laplace(0, b).expand([x.shape[1]]))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, sigma), obs=y)


def horseshoe(X: Any, Y: Any = None) -> None:
    D_X = X.shape[1]
    lambdas = numpyro.sample("lambdas", dist.HalfCauchy(jnp.ones(D_X)))
    tau = numpyro.sample("tau", dist.HalfCauchy(jnp.ones(1)))
    unscaled_betas = numpyro.sample("unscaled_betas", dist.Normal(0.0, jnp.ones(D_X)))
    scaled_betas = numpyro.deterministic("betas", tau * lambdas * unscaled_betas)
    mean_function = jnp.dot(X, scaled_betas)
    prec_obs = numpyro.sample("prec_obs", dist.Gamma(3.0, 1.0))
    sigma_obs = 1.0 / jnp.sqrt(prec_obs)
    numpyro.sample("Y", dist.Normal(mean_function, sigma_obs), obs=Y)


def horseshoe_data() -> Data:
    rng = np.random.default_rng(10)
    x = rng.normal(size=(100, 20))
    return {"X": x, "Y": x[:, :3] @ np.array([2.0, 1.5, 1.0]) + 0.5 * rng.normal(size=100)}


def splines(B: Any, doy: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(100, 10))
    w = numpyro.sample("w", dist.Normal(0, 10).expand([B.shape[1]]))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    mu = numpyro.deterministic("mu", a + B @ w)
    numpyro.sample("doy", dist.Normal(mu, sigma), obs=doy)


def splines_data() -> Data:
    from scipy.interpolate import BSpline

    year = np.sort(np.random.default_rng(11).uniform(0.0, 1.0, 827))
    knots = np.concatenate([[0.0] * 3, np.quantile(year, np.linspace(0, 1, 15)), [1.0] * 3])
    basis = BSpline.design_matrix(np.clip(year, 0.0, 1.0 - 1e-9), knots, 3).toarray()
    return drawn(splines, 11, {"a": 104.0, "sigma": 5.9}, "doy", B=basis)


def heteroscedastic(income: Any, food: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(0, 1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    c = numpyro.sample("c", dist.Normal(-1, 1))
    d = numpyro.sample("d", dist.Normal(0, 1))
    with numpyro.plate("households", income.shape[0]):
        numpyro.sample("food", dist.Normal(a + b * income, jnp.exp(c + d * income)), obs=food)


def quantile(income: Any, food: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(0, 1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("households", income.shape[0]):
        numpyro.sample("food", dist.AsymmetricLaplaceQuantile(a + b * income, sigma, 0.9), obs=food)


def engel_data() -> Data:
    import statsmodels.datasets as sets

    found: Any = sets.engel.load_pandas().data
    return {"income": standardised(np.log(found["income"])), "food": standardised(np.log(found["foodexp"]))}


def dugongs(x: Any, y: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(3, 2))
    beta = numpyro.sample("beta", dist.HalfNormal(2))
    lam = numpyro.sample("lambda", dist.Uniform(0.5, 1.0))
    tau = numpyro.sample("tau", dist.Gamma(1.0, 0.1))
    with numpyro.plate("dugongs", x.shape[0]):
        numpyro.sample("y", dist.Normal(alpha - beta * lam**x, 1 / jnp.sqrt(tau)), obs=y)


def dugongs_data() -> Data:
    x = np.array([1, 1.5, 1.5, 1.5, 2.5, 4, 5, 5, 7, 8, 8.5, 9, 9.5, 9.5, 10, 12, 12, 13, 13, 14.5, 15.5, 15.5, 16.5])
    x = np.concatenate([x, [17, 22.5, 29, 31.5]])
    return drawn(dugongs, 12, {"alpha": 2.65, "beta": 0.97, "lambda": 0.86, "tau": 100.0}, "y", x=x)


def cylinder(h: Any, w: Any = None) -> None:
    p = numpyro.sample("p", dist.Beta(2, 18))
    k = numpyro.sample("k", dist.Exponential(0.5))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    mu = numpyro.deterministic("mu", jnp.log(jnp.pi * k * p**2 * h**3))
    numpyro.sample("w", dist.LogNormal(mu, sigma), obs=w)


def cylinder_data() -> Data:
    h = np.clip(np.random.default_rng(13).normal(1.0, 0.2, 544), 0.4, 1.4)
    return drawn(cylinder, 13, {"p": 0.25, "k": 5.0, "sigma": 0.2}, "w", h=h)


def pharmacokinetics(time: Any, dose: Any, concentration: Any = None) -> None:
    ka = numpyro.sample("ka", dist.LogNormal(0.4, 0.5))
    ke = numpyro.sample("ke", dist.LogNormal(-2.5, 0.5))
    V = numpyro.sample("V", dist.LogNormal(-0.7, 0.5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    mean = dose * ka / (V * (ka - ke)) * (jnp.exp(-ke * time) - jnp.exp(-ka * time))
    with numpyro.plate("measurements", time.shape[0]):
        numpyro.sample("concentration", dist.LogNormal(jnp.log(mean), sigma), obs=concentration)


def pharmacokinetics_data() -> Data:
    time = np.tile([0.25, 0.5, 1.0, 2.0, 3.5, 5.0, 7.0, 9.0, 12.0, 24.0], 12)
    values = {"ka": 1.5, "ke": 0.08, "V": 0.5, "sigma": 0.2}
    return drawn(pharmacokinetics, 14, values, "concentration", time=time, dose=np.full(120, 4.0))


def gompertz(t: Any, size: Any = None) -> None:
    a = numpyro.sample("a", dist.LogNormal(2.3, 0.5))
    b = numpyro.sample("b", dist.LogNormal(1.0, 0.5))
    c = numpyro.sample("c", dist.LogNormal(-1.0, 0.5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    numpyro.sample("size", dist.Normal(a * jnp.exp(-b * jnp.exp(-c * t)), sigma), obs=size)


def gompertz_data() -> Data:
    t = np.linspace(0.0, 15.0, 60)
    return drawn(gompertz, 15, {"a": 10.0, "b": 3.0, "c": 0.4, "sigma": 0.5}, "size", t=t)


# ------------------------------------------------------------------------------------------ binary and ordered


def wells(dist100: Any, arsenic: Any, switched: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0, 5))
    beta = numpyro.sample("beta", dist.Normal(0, 5).expand([3]))
    logits = alpha + beta[0] * dist100 + beta[1] * arsenic + beta[2] * dist100 * arsenic
    with numpyro.plate("wells", dist100.shape[0]):
        numpyro.sample("switched", dist.Bernoulli(logits=logits), obs=switched)


def wells_data() -> Data:
    rng = np.random.default_rng(20)
    far, arsenic = rng.gamma(1.6, 0.3, 3020), 0.5 + rng.gamma(1.1, 1.0, 3020)
    values = {"alpha": -0.15, "beta": [-0.58, 0.56, -0.18]}
    return drawn(wells, 20, values, "switched", dist100=far, arsenic=arsenic)


def nes_logit(income: Any, vote: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 2.5))
    numpyro.sample("vote", dist.Bernoulli(logits=alpha + beta * income), obs=vote)


def nes_logit_data() -> Data:
    income = np.random.default_rng(21).integers(1, 6, 1179).astype(float)
    return drawn(nes_logit, 21, {"alpha": -1.4, "beta": 0.33}, "vote", income=income)


def probit_cdf(x: Any, y: Any = None) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]))
    probs = dist.Normal(0, 1).cdf(x @ beta)
    numpyro.sample("y", dist.Bernoulli(probs=probs), obs=y)


def probit_data() -> Data:
    x = np.column_stack([np.ones(300), np.random.default_rng(22).normal(size=(300, 3))])
    return drawn(probit_cdf, 22, {"beta": [0.3, 1.0, -0.7, 0.2]}, "y", x=x)


def beetles(dose: Any, n: Any, killed: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 50))
    with numpyro.plate("doses", dose.shape[0]):
        numpyro.sample("killed", dist.Binomial(n, logits=alpha + beta * (dose - 1.7934)), obs=killed)


def beetles_cloglog(dose: Any, n: Any, killed: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 50))
    p = 1.0 - jnp.exp(-jnp.exp(alpha + beta * (dose - 1.7934)))
    with numpyro.plate("doses", dose.shape[0]):
        numpyro.sample("killed", dist.Binomial(n, probs=p), obs=killed)


def beetles_data() -> Data:
    dose = np.array([1.6907, 1.7242, 1.7552, 1.7842, 1.8113, 1.8369, 1.861, 1.8839])
    n = np.array([59, 60, 62, 56, 63, 59, 62, 60])
    return drawn(beetles, 23, {"alpha": 0.74, "beta": 34.0}, "killed", dose=dose, n=n)


def bioassay(x: Any, n: Any, y: Any = None) -> None:
    ab = numpyro.sample("ab", dist.MultivariateNormal(jnp.array([0.0, 10.0]), jnp.array([[4.0, 12.0], [12.0, 100.0]])))
    numpyro.sample("y", dist.Binomial(n, logits=ab[0] + ab[1] * x), obs=y)


def bioassay_data() -> Data:
    """The data of the book: deaths of five animals at each of four doses."""
    return {"x": np.array([-0.86, -0.3, -0.05, 0.73]), "n": np.full(4, 5), "y": np.array([0, 1, 3, 5])}


def ordinal_improper(X: Any, Y: Any = None, nclasses: int = 3) -> None:
    b_X_eta = numpyro.sample("b_X_eta", dist.Normal(0, 5))
    support = constraints.ordered_vector
    c_y = numpyro.sample("c_y", dist.ImproperUniform(support, batch_shape=(), event_shape=(nclasses - 1,)))
    with numpyro.plate("obs", X.shape[0]):
        eta = X * b_X_eta
        numpyro.sample("Y", dist.OrderedLogistic(eta, c_y), obs=Y)


def ordinal_dirichlet(X: Any, Y: Any = None, nclasses: int = 3, concentration: Any = (1.0, 10.0, 1.0)) -> None:
    b_X_eta = numpyro.sample("b_X_eta", dist.Normal(0, 5))
    prior = dist.TransformedDistribution(
        dist.Dirichlet(jnp.asarray(concentration)), SimplexToOrderedTransform(anchor_point=0.0)
    )
    c_y = numpyro.sample("c_y", prior)
    with numpyro.plate("obs", X.shape[0]):
        eta = X * b_X_eta
        numpyro.sample("Y", dist.OrderedLogistic(eta, c_y), obs=Y)


def ordinal_data() -> Data:
    rng = np.random.default_rng(24)
    x = rng.normal(size=200)
    latent = 1.5 * x + rng.logistic(size=200)
    return {"X": x, "Y": np.digitize(latent, [-1.2, 1.0])}


def trolley(A: Any, I: Any, C: Any, R: Any = None) -> None:  # noqa: E741 - the names of the book
    bA = numpyro.sample("bA", dist.Normal(0, 0.5))
    bC = numpyro.sample("bC", dist.Normal(0, 0.5))
    bI = numpyro.sample("bI", dist.Normal(0, 0.5))
    bIA = numpyro.sample("bIA", dist.Normal(0, 0.5))
    bIC = numpyro.sample("bIC", dist.Normal(0, 0.5))
    phi = bA * A + bC * C + (bI + bIA * A + bIC * C) * I
    cutpoints = numpyro.sample(
        "cutpoints", dist.TransformedDistribution(dist.Normal(0, 1.5).expand([6]), OrderedTransform())
    )
    numpyro.sample("R", dist.OrderedLogistic(phi, cutpoints), obs=R)


def trolley_data() -> Data:
    rng = np.random.default_rng(25)
    action, intention = rng.binomial(1, 0.43, 9930), rng.binomial(1, 0.46, 9930)
    contact = np.where(action == 1, 0, rng.binomial(1, 0.35, 9930))
    phi = -0.47 * action - 0.34 * contact + (-0.29 - 0.43 * action - 1.23 * contact) * intention
    latent = phi + rng.logistic(size=9930)
    ratings = np.digitize(latent, [-2.63, -1.94, -1.34, -0.31, 0.36, 1.27])
    return {"A": action, "I": intention, "C": contact, "R": ratings}


def ordered_probit(x: Any, y: Any = None) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]))
    first = numpyro.sample("first", dist.Normal(-1, 1))
    gaps = numpyro.sample("gaps", dist.LogNormal(0, 0.5).expand([2]))
    cuts = first + jnp.concatenate([jnp.zeros(1), jnp.cumsum(gaps)])
    below = jax.scipy.stats.norm.cdf(cuts - (x @ beta)[:, None])
    below = jnp.pad(below, ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1)))
    numpyro.sample("y", dist.Categorical(probs=jnp.diff(below, axis=-1)), obs=y)


def ordered_probit_data() -> Data:
    x = np.random.default_rng(26).normal(size=(400, 2))
    return drawn(ordered_probit, 26, {"beta": [0.8, -0.5], "first": -1.0, "gaps": [1.0, 1.2]}, "y", x=x)


def softmax(X: Any, species: Any = None) -> None:
    W = numpyro.sample("W", dist.Normal(0, 1).expand([X.shape[1], 3]).to_event(2))
    b = numpyro.sample("b", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("flowers", X.shape[0]):
        numpyro.sample("species", dist.Categorical(logits=X @ W + b), obs=species)


def iris_data() -> Data:
    from sklearn.datasets import load_iris

    found: Any = load_iris()
    return {"X": standardised(found.data), "species": found.target}


def careers(career_income: Any, career: Any = None, N: int = 500) -> None:
    a = numpyro.sample("a", dist.Normal(0, 1).expand([2]))
    b = numpyro.sample("b", dist.HalfNormal(0.5))
    s_1 = a[0] + b * career_income[0]
    s_2 = a[1] + b * career_income[1]
    s_3 = 0.0
    p = jax.nn.softmax(jnp.stack([s_1, s_2, s_3]))
    with numpyro.plate("people", N):
        numpyro.sample("career", dist.Categorical(probs=p), obs=career)


def careers_data() -> Data:
    income = np.array([1.0, 2.0, 5.0])
    p = np.exp(0.5 * income) / np.exp(0.5 * income).sum()
    return {"career_income": income, "career": np.random.default_rng(27).choice(3, 500, p=p), "N": 500}


def multinomial(x: Any, total: Any, counts: Any = None) -> None:
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    logits = jnp.pad(w[0] + x[:, None] * w[1], ((0, 0), (0, 1)))
    with numpyro.plate("cells", x.shape[0]):
        numpyro.sample("counts", dist.Multinomial(total, logits=logits, total_count_max=30), obs=counts)


def multinomial_data() -> Data:
    x = np.linspace(-2.0, 2.0, 40)
    truth = {"w": [[0.5, 0.0, -0.5], [1.0, 0.0, -0.7]]}
    return drawn(multinomial, 28, truth, "counts", x=x, total=np.full(40, 30))


# ------------------------------------------------------------------------------------------------ counts


def glm_poisson(year: Any, C: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.Uniform(-20, 20))
    beta = numpyro.sample("beta", dist.Uniform(-10, 10).expand([3]))
    log_lambda = alpha + beta[0] * year + beta[1] * year**2 + beta[2] * year**3
    with numpyro.plate("years", year.shape[0]):
        numpyro.sample("C", dist.Poisson(jnp.exp(log_lambda)), obs=C)


def glmm_poisson(year: Any, C: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([3]))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("years", year.shape[0]):
        eps = numpyro.sample("eps", dist.Normal(0, sigma))
        log_lambda = alpha + beta[0] * year + beta[1] * year**2 + beta[2] * year**3 + eps
        numpyro.sample("C", dist.Poisson(jnp.exp(log_lambda)), obs=C)


def peregrine_data() -> Data:
    values = {"alpha": 3.57, "beta": [1.18, 0.05, -0.2]}
    return drawn(glm_poisson, 30, values, "C", year=np.linspace(-1.67, 1.67, 40))


def peregrine_mixed_data() -> Data:
    values = {"alpha": 3.57, "beta": [1.18, 0.05, -0.2], "sigma": 0.2}
    return drawn(glmm_poisson, 31, values, "C", year=np.linspace(-1.67, 1.67, 40))


def roaches(x: Any, exposure: Any, y: Any = None) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 2.5).expand([4]))
    with numpyro.plate("flats", x.shape[0]):
        numpyro.sample("y", dist.Poisson(exposure * jnp.exp(x @ beta)), obs=y)


def roaches_negative_binomial(x: Any, exposure: Any, y: Any = None) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 2.5).expand([4]))
    phi = numpyro.sample("phi", dist.Exponential(1))
    with numpyro.plate("flats", x.shape[0]):
        numpyro.sample("y", dist.NegativeBinomial2(exposure * jnp.exp(x @ beta), phi), obs=y)


def roaches_hurdle(x: Any, exposure: Any, y: Any = None) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 2.5).expand([4]))
    gamma = numpyro.sample("gamma", dist.Normal(0, 2.5).expand([4]))
    rate = exposure * jnp.exp(x @ beta)
    logit = x @ gamma
    positive = dist.Poisson(rate).log_prob(jnp.maximum(y, 1)) - jnp.log1p(-jnp.exp(-rate))
    zero, some = jax.nn.log_sigmoid(logit), jax.nn.log_sigmoid(-logit)
    with numpyro.plate("flats", x.shape[0]):
        numpyro.factor("y", jnp.where(y == 0, zero, some + positive))


def _roaches() -> Data:
    rng = np.random.default_rng(32)
    x = np.column_stack([np.ones(262), rng.gamma(0.5, 1.0, 262), rng.binomial(1, 0.6, 262), rng.binomial(1, 0.3, 262)])
    return {"x": x, "exposure": rng.uniform(0.5, 1.5, 262)}


def roaches_data() -> Data:
    return drawn(roaches, 32, {"beta": [2.0, 0.5, -0.5, -0.4]}, "y", **_roaches())


def roaches_overdispersed_data() -> Data:
    values = {"beta": [2.8, 0.8, -0.8, -0.4], "phi": 0.3}
    return drawn(roaches_negative_binomial, 33, values, "y", **_roaches())


def zip_fishing(X: Any, Y: Any = None) -> None:
    D_X = X.shape[1]
    b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([D_X]).to_event(1))
    b2 = numpyro.sample("b2", dist.Normal(0.0, 1.0).expand([D_X]).to_event(1))
    q = jax.nn.sigmoid(jnp.dot(X, b1[:, None])).reshape(-1)
    lam = jnp.exp(jnp.dot(X, b2[:, None]).reshape(-1))
    with numpyro.plate("obs", X.shape[0]):
        numpyro.sample("Y", dist.ZeroInflatedPoisson(gate=q, rate=lam), obs=Y)


def zip_fishing_data() -> Data:
    rng = np.random.default_rng(34)
    x = np.column_stack(
        [
            np.ones(250),
            rng.binomial(1, 0.5, 250),
            rng.binomial(1, 0.6, 250),
            rng.poisson(0.7, 250),
            rng.poisson(1.5, 250),
        ]
    )
    values = {"b1": [0.5, -0.5, -0.3, 0.8, -0.6], "b2": [-0.8, 1.0, 0.5, -0.7, 0.6]}
    return drawn(zip_fishing, 34, values, "Y", X=x.astype(float))


def zip_monks(y: Any) -> None:
    ap = numpyro.sample("ap", dist.Normal(-1.5, 1))
    al = numpyro.sample("al", dist.Normal(1, 0.5))
    p = jax.nn.sigmoid(ap)
    lambda_ = jnp.exp(al)
    numpyro.sample("y", dist.ZeroInflatedPoisson(p, lambda_), obs=y)


def zip_monks_data() -> Data:
    rng = np.random.default_rng(35)
    return {"y": rng.binomial(1, 0.8, 365) * rng.poisson(1.0, 365)}


def oceanic_tools(P: Any, cid: Any, T: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(3, 0.5).expand([2]))
    b = numpyro.sample("b", dist.Normal(0, 0.2).expand([2]))
    lambda_ = jnp.exp(a[cid] + b[cid] * P)
    numpyro.sample("T", dist.Poisson(lambda_), obs=T)


def oceanic_tools_scientific(P: Any, cid: Any, T: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(1, 1).expand([2]))
    b = numpyro.sample("b", dist.Exponential(1).expand([2]))
    g = numpyro.sample("g", dist.Exponential(1))
    lambda_ = jnp.exp(a[cid]) * jnp.power(P, b[cid]) / g
    numpyro.sample("T", dist.Poisson(lambda_), obs=T)


KLINE = {
    "population": np.array([1100, 1500, 3600, 4791, 7400, 8000, 9200, 13000, 17500, 275000.0]),
    "tools": np.array([13, 22, 24, 43, 33, 19, 40, 28, 55, 71]),
    "high": np.array([0, 0, 0, 1, 1, 1, 1, 0, 1, 0]),
}


def kline_data() -> Data:
    """The ten societies of the book."""
    return {"P": standardised(np.log(KLINE["population"])), "cid": KLINE["high"], "T": KLINE["tools"]}


def kline_scientific_data() -> Data:
    return {"P": KLINE["population"], "cid": KLINE["high"], "T": KLINE["tools"]}


def panda_nuts(age: Any, seconds: Any, n: Any = None) -> None:
    phi = numpyro.sample("phi", dist.LogNormal(jnp.log(1), 0.1))
    k = numpyro.sample("k", dist.LogNormal(jnp.log(2), 0.25))
    theta = numpyro.sample("theta", dist.LogNormal(jnp.log(5), 0.25))
    lambda_ = seconds * phi * jnp.power(1 - jnp.exp(-k * age), theta)
    numpyro.sample("n", dist.Poisson(lambda_), obs=n)


def panda_nuts_data() -> Data:
    rng = np.random.default_rng(36)
    age, seconds = rng.uniform(0.2, 1.0, 84), rng.gamma(1.5, 20.0, 84) + 2
    return drawn(panda_nuts, 36, {"phi": 0.87, "k": 5.9, "theta": 9.7}, "n", age=age, seconds=seconds)


# ---------------------------------------------------------------------------------- other observed values


def beta_regression(x: Any, y: Any = None) -> None:
    b = numpyro.sample("b", dist.Normal(0, 2).expand([x.shape[1]]))
    phi = numpyro.sample("phi", dist.HalfNormal(50))
    mu = jax.nn.sigmoid(x @ b)
    with numpyro.plate("batches", x.shape[0]):
        numpyro.sample("y", dist.Beta(mu * phi, (1 - mu) * phi), obs=y)


def beta_regression_data() -> Data:
    x = np.column_stack([np.ones(60), np.random.default_rng(40).normal(size=(60, 2))])
    return drawn(beta_regression, 40, {"b": [-1.3, 0.4, 0.6], "phi": 30.0}, "y", x=x)


def gamma_regression(x: Any, y: Any = None) -> None:
    b = numpyro.sample("b", dist.Normal(0, 2).expand([x.shape[1]]))
    shape = numpyro.sample("shape", dist.HalfNormal(5))
    with numpyro.plate("claims", x.shape[0]):
        numpyro.sample("y", dist.Gamma(shape, shape * jnp.exp(-(x @ b))), obs=y)


def gamma_regression_data() -> Data:
    x = np.column_stack([np.ones(150), np.random.default_rng(41).normal(size=(150, 2))])
    return drawn(gamma_regression, 41, {"b": [1.0, 0.5, -0.3], "shape": 2.0}, "y", x=x)


def truncated(x: Any, y: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(0, 2))
    b = numpyro.sample("b", dist.Normal(0, 2))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("obs", x.shape[0]):
        numpyro.sample("y", dist.TruncatedNormal(a + b * x, sigma, low=0.0), obs=y)


def truncated_data() -> Data:
    x = np.random.default_rng(42).uniform(-1, 3, 200)
    return drawn(truncated, 42, {"a": 0.3, "b": 1.0, "sigma": 1.0}, "y", x=x)


def tobit(x: Any, censored: Any, y: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(0, 2))
    b = numpyro.sample("b", dist.Normal(0, 2))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("obs", x.shape[0]):
        numpyro.sample("y", dist.LeftCensoredDistribution(dist.Normal(a + b * x, sigma), censored), obs=y)


def tobit_data() -> Data:
    rng = np.random.default_rng(43)
    x = rng.uniform(-2, 3, 200)
    y = 0.3 + x + rng.normal(size=200)
    return {"x": x, "censored": (y < 0).astype(int), "y": np.maximum(y, 0.0)}


def von_mises(x: Any, angle: Any = None) -> None:
    mu = numpyro.sample("mu", dist.VonMises(0.0, 0.5))
    b = numpyro.sample("b", dist.Normal(0, 1))
    kappa = numpyro.sample("kappa", dist.Gamma(2.0, 0.5))
    with numpyro.plate("directions", x.shape[0]):
        numpyro.sample("angle", dist.VonMises(mu + 2 * jnp.arctan(b * x), kappa), obs=angle)


def von_mises_normal(x: Any, angle: Any = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    kappa = numpyro.sample("kappa", dist.Gamma(2.0, 0.5))
    with numpyro.plate("directions", x.shape[0]):
        numpyro.sample("angle", dist.VonMises(mu + 2 * jnp.arctan(b * x), kappa), obs=angle)


def von_mises_data() -> Data:
    x = np.random.default_rng(44).normal(size=100)
    return drawn(von_mises_normal, 44, {"mu": 0.5, "b": 0.4, "kappa": 3.0}, "angle", x=x)


def exponential_censored(days: Any, adopted: Any, black: Any) -> None:
    a = numpyro.sample("a", dist.Normal(0, 1).expand([2]))
    lambda_ = 1 / jnp.exp(a[black])
    numpyro.sample("days_seen", dist.Exponential(lambda_).mask(adopted == 1), obs=days)
    numpyro.factor("days_censored", jnp.where(adopted == 1, 0.0, -lambda_ * days))


def exponential_two_plates(days: Any, colour: Any, days_censored: Any, colour_censored: Any) -> None:
    a = numpyro.sample("a", dist.Normal(0, 1).expand([2]))
    lambda_ = 1 / jnp.exp(a)
    with numpyro.plate("adopted", days.shape[0]):
        numpyro.sample("days", dist.Exponential(lambda_[colour]), obs=days)
    with numpyro.plate("waiting", days_censored.shape[0]):
        numpyro.factor("days_censored", -lambda_[colour_censored] * days_censored)


def _cats() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(45)
    black = rng.binomial(1, 0.13, 1000)
    days, limit = rng.exponential(np.where(black, 5.5, 4.8)), rng.exponential(15.0, 1000)
    return np.minimum(days, limit), (days <= limit).astype(int), black


def cats_data() -> Data:
    days, adopted, black = _cats()
    return {"days": days, "adopted": adopted, "black": black}


def cats_split_data() -> Data:
    days, adopted, black = _cats()
    seen = adopted == 1
    return {
        "days": days[seen],
        "colour": black[seen],
        "days_censored": days[~seen],
        "colour_censored": black[~seen],
    }


def weibull_censored(group: Any, censored: Any, t: Any = None) -> None:
    r = numpyro.sample("r", dist.Gamma(1.0, 0.2))
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([4]))
    with numpyro.plate("mice", group.shape[0]):
        base = dist.Weibull(scale=jnp.exp(-beta[group] / r), concentration=r)
        numpyro.sample("t", dist.RightCensoredDistribution(base, censored), obs=t)


def mice_data() -> Data:
    rng = np.random.default_rng(46)
    group = np.repeat(np.arange(4), 20)
    t = np.array([24.0, 35.0, 27.0, 30.0])[group] * rng.weibull(3.0, 80)
    return {"group": group, "censored": (t > 40).astype(int), "t": np.minimum(t, 40.0)}


def measurement_error_known(D_sd: Any, A: Any, M: Any, D_obs: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(0, 0.2))
    bA = numpyro.sample("bA", dist.Normal(0, 0.5))
    bM = numpyro.sample("bM", dist.Normal(0, 0.5))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    D_true = numpyro.sample("D_true", dist.Normal(a + bA * A + bM * M, sigma))
    numpyro.sample("D_obs", dist.Normal(D_true, D_sd), obs=D_obs)


def measurement_error_known_plate(D_sd: Any, A: Any, M: Any, D_obs: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(0, 0.2))
    bA = numpyro.sample("bA", dist.Normal(0, 0.5))
    bM = numpyro.sample("bM", dist.Normal(0, 0.5))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    with numpyro.plate("states", D_sd.shape[0]):
        D_true = numpyro.sample("D_true", dist.Normal(a + bA * A + bM * M, sigma))
        numpyro.sample("D_obs", dist.Normal(D_true, D_sd), obs=D_obs)


def divorce_measured_data() -> Data:
    data = divorce_data()
    rng = np.random.default_rng(47)
    error = rng.gamma(4.0, 0.12, 50)
    seen = data.pop("D")
    return {**data, "D_sd": error, "D_obs": seen + error * rng.normal(size=50)}


def measurement_error_both(D_obs: Any, D_sd: Any, M_obs: Any, M_sd: Any, A: Any, N: int) -> None:
    a = numpyro.sample("a", dist.Normal(0, 0.2))
    bA = numpyro.sample("bA", dist.Normal(0, 0.5))
    bM = numpyro.sample("bM", dist.Normal(0, 0.5))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    M_est = numpyro.sample("M_est", dist.Normal(0, 1).expand([N]))
    numpyro.sample("M_obs", dist.Normal(M_est, M_sd), obs=M_obs)
    D_est = numpyro.sample("D_est", dist.Normal(a + bA * A + bM * M_est, sigma).expand([N]))
    numpyro.sample("D_obs", dist.Normal(D_est, D_sd), obs=D_obs)


def divorce_both_measured_data() -> Data:
    data = divorce_measured_data()
    rng = np.random.default_rng(48)
    error = rng.gamma(4.0, 0.08, 50)
    seen = data.pop("M")
    return {**data, "M_sd": error, "M_obs": seen + error * rng.normal(size=50), "N": 50}


def missing_values(M: Any, B: Any, K: Any) -> None:
    a = numpyro.sample("a", dist.Normal(0, 0.5))
    bB = numpyro.sample("bB", dist.Normal(0, 0.5))
    bM = numpyro.sample("bM", dist.Normal(0, 0.5))
    nu = numpyro.sample("nu", dist.Normal(0, 0.5))
    sigma_B = numpyro.sample("sigma_B", dist.Exponential(1))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    missing = np.nonzero(np.isnan(B))[0]
    B_impute = numpyro.sample("B_impute", dist.Normal(nu, sigma_B).expand([len(missing)]).mask(False))
    B = jnp.asarray(B).at[missing].set(B_impute)
    numpyro.sample("B", dist.Normal(nu, sigma_B), obs=B)
    numpyro.sample("K", dist.Normal(a + bB * B + bM * M, sigma), obs=K)


def milk_data() -> Data:
    rng = np.random.default_rng(49)
    mass = rng.normal(size=29)
    brain = 0.7 * mass + 0.7 * rng.normal(size=29)
    energy = 0.5 * brain - 0.6 * mass + 0.8 * rng.normal(size=29)
    brain[rng.choice(29, 12, replace=False)] = np.nan
    return {"M": mass, "B": brain, "K": energy}


def losscurve(cohort: Any, t: Any, premium: Any, loss: Any = None, n_cohort: int = 10) -> None:
    omega = numpyro.sample("omega", dist.LogNormal(0, 0.5))
    theta = numpyro.sample("theta", dist.LogNormal(0, 0.5))
    mu_LR = numpyro.sample("mu_LR", dist.Normal(0, 0.5))
    sd_LR = numpyro.sample("sd_LR", dist.LogNormal(0, 0.5))
    loss_sd = numpyro.sample("loss_sd", dist.LogNormal(0, 0.7))
    with numpyro.plate("cohorts", n_cohort):
        LR = numpyro.sample("LR", dist.LogNormal(mu_LR, sd_LR))
    growth = t**omega / (t**omega + theta**omega)
    with numpyro.plate("losses", cohort.shape[0]):
        mean, sd = LR[cohort] * premium * growth, loss_sd * premium
        numpyro.sample("loss", dist.Normal(mean, sd), obs=loss)


def losscurve_data() -> Data:
    cohort = np.concatenate([np.full(10 - i, i) for i in range(10)])
    t = np.concatenate([np.arange(1.0, 11.0 - i) for i in range(10)])
    premium = (100.0 + 5 * np.arange(10.0))[cohort]
    values = {"omega": 1.3, "theta": 3.0, "mu_LR": -0.2, "sd_LR": 0.2, "loss_sd": 0.03}
    return drawn(losscurve, 50, values, "loss", cohort=cohort, t=t, premium=premium)


def proportions(group: Any, y: Any = None) -> None:
    p = numpyro.sample("p", dist.Beta(1, 1).expand([2]))
    with numpyro.plate("visitors", group.shape[0]):
        numpyro.sample("y", dist.Bernoulli(probs=p[group]), obs=y)


def proportions_data() -> Data:
    group = np.random.default_rng(51).binomial(1, 0.5, 500)
    return drawn(proportions, 51, {"p": [0.1, 0.16]}, "y", group=group)


def tulips(blocks: Any, water: Any = None, shade: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(0.5, 0.25))
    bw = numpyro.sample("bw", dist.Normal(0, 0.25))
    bs = numpyro.sample("bs", dist.Normal(0, 0.25))
    bws = numpyro.sample("bws", dist.Normal(0, 0.25))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    mu = a + bw * water + bs * shade + bws * water * shade
    numpyro.sample("blocks", dist.Normal(mu, sigma), obs=blocks)


def tulips_data() -> Data:
    water, shade = (a.reshape(-1) for a in np.meshgrid([-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0]))
    water, shade = np.tile(water, 3), np.tile(shade, 3)
    noise = 0.12 * np.random.default_rng(52).normal(size=27)
    return {"blocks": 0.36 + 0.2 * water - 0.11 * shade - 0.14 * water * shade + noise, "water": water, "shade": shade}
