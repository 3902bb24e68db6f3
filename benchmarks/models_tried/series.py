"""Published models of series, of functions and of differential equations, as users of NumPyro write them."""

# NumPyro declares a sample as an array or a number, so that pyright finds fault with every index into a latent.
# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.experimental.ode import odeint
from jax.scipy.special import logsumexp
from numpyro.contrib.control_flow import scan

from benchmarks.models_tried.simulate import drawn

Data = dict[str, Any]

# --------------------------------------------------------------------------------------- autoregressions


def ar_one_columns(before: Any, y: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0, 2))
    beta = numpyro.sample("beta", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    with numpyro.plate("T", before.shape[0]):
        numpyro.sample("y", dist.Normal(alpha + beta * before, sigma), obs=y)


def ar_one(y: Any) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0, 2))
    beta = numpyro.sample("beta", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    numpyro.sample("y", dist.Normal(alpha + beta * y[:-1], sigma), obs=y[1:])


def ar_k(y: Any, K: int = 5) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([K]))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    T = len(y)
    mu = alpha + sum(beta[k] * y[K - k - 1 : T - k - 1] for k in range(K))
    numpyro.sample("y", dist.Normal(mu, sigma), obs=y[K:])


def ar_two_scan(y: Any) -> None:
    alpha_1 = numpyro.sample("alpha_1", dist.Normal(0, 1))
    alpha_2 = numpyro.sample("alpha_2", dist.Normal(0, 1))
    const = numpyro.sample("const", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))

    def transition(carry: Any, _: Any) -> Any:
        y_prev, y_prev_prev = carry
        m_t = const + alpha_1 * y_prev + alpha_2 * y_prev_prev
        y_t = numpyro.sample("y", dist.Normal(m_t, sigma))
        carry = (y_t, y_prev)
        return carry, m_t

    timesteps = jnp.arange(y.shape[0] - 2)
    init = (jnp.asarray(y)[1], jnp.asarray(y)[0])
    with numpyro.handlers.condition(data={"y": jnp.asarray(y[2:])}):
        scan(transition, init, timesteps)


def _ar_series(n: int = 200) -> np.ndarray:
    rng = np.random.default_rng(130)
    y = np.zeros(n)
    for t in range(1, n):
        y[t] = 0.3 + 0.6 * y[t - 1] + 0.5 * rng.normal()
    return y


def ar_one_data() -> Data:
    return {"y": _ar_series()}


def ar_one_columns_data() -> Data:
    y = _ar_series()
    return {"before": y[:-1], "y": y[1:]}


def arma(y: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    phi = numpyro.sample("phi", dist.Normal(0, 2))
    theta = numpyro.sample("theta", dist.Normal(0, 2))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))

    def step(carry: Any, y_t: Any) -> Any:
        y_before, error_before = carry
        error = y_t - (mu + phi * y_before + theta * error_before)
        return (y_t, error), error

    first = y[0] - (mu + phi * mu)
    _, errors = jax.lax.scan(step, (y[0], first), y[1:])
    numpyro.sample("errors", dist.Normal(0, sigma), obs=jnp.concatenate([first[None], errors]))


def garch(y: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    alpha0 = numpyro.sample("alpha0", dist.HalfNormal(1))
    alpha1 = numpyro.sample("alpha1", dist.Uniform(0, 1))
    share = numpyro.sample("share", dist.Uniform(0, 1))
    beta1 = (1 - alpha1) * share

    def step(sigma: Any, y_t: Any) -> Any:
        new = jnp.sqrt(alpha0 + alpha1 * (y_t - mu) ** 2 + beta1 * sigma**2)
        return new, sigma

    _, sigmas = jax.lax.scan(step, 0.5, y)
    numpyro.sample("y", dist.Normal(mu, sigmas), obs=y)


# --------------------------------------------------------------------------------------- hidden series


def stochastic_volatility(returns: Any) -> None:
    step_size = numpyro.sample("sigma", dist.Exponential(50.0))
    s = numpyro.sample("s", dist.GaussianRandomWalk(scale=step_size, num_steps=jnp.shape(returns)[0]))
    nu = numpyro.sample("nu", dist.Exponential(0.1))
    numpyro.sample("r", dist.StudentT(df=nu, loc=0.0, scale=jnp.exp(s)), obs=returns)


def returns_data() -> Data:
    rng = np.random.default_rng(131)
    return {"returns": np.exp(np.cumsum(0.05 * rng.normal(size=200)) - 1.0) * rng.standard_t(8, 200)}


def local_level(y: Any) -> None:
    sigma_level = numpyro.sample("sigma_level", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    level = numpyro.sample("level", dist.GaussianRandomWalk(sigma_level, num_steps=y.shape[0]))
    numpyro.sample("y", dist.Normal(level, sigma), obs=y)


def local_level_indexed(t: Any, y: Any, T: int = 100) -> None:
    sigma_level = numpyro.sample("sigma_level", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    level = numpyro.sample("level", dist.GaussianRandomWalk(sigma_level, num_steps=T))
    with numpyro.plate("years", t.shape[0]):
        numpyro.sample("y", dist.Normal(level[t], sigma), obs=y)


def local_level_noncentred(t: Any, y: Any, T: int = 100) -> None:
    sigma_level = numpyro.sample("sigma_level", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([T]))
    level = sigma_level * jnp.cumsum(z)
    with numpyro.plate("years", t.shape[0]):
        numpyro.sample("y", dist.Normal(level[t], sigma), obs=y)


def level_of_steps(draws: dict[str, Any]) -> dict[str, Any]:
    """The levels of draws of standardised steps."""
    return {**draws, "level": draws["sigma_level"][..., None] * jnp.cumsum(draws["z"], -1)}


def _nile() -> np.ndarray:
    import statsmodels.datasets as sets

    found: Any = sets.nile.load_pandas().data
    volume = np.asarray(found["volume"], float)
    return (volume - volume.mean()) / volume.std()


def nile_data() -> Data:
    return {"y": _nile()}


def nile_indexed_data() -> Data:
    return {"t": np.arange(100), "y": _nile()}


def time_varying_intercept(t: Any, x: Any, y: Any = None, T: int = 60) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 1))
    scale = numpyro.sample("scale", dist.HalfNormal(0.5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    start = numpyro.sample("start", dist.Normal(0, 1))
    with numpyro.plate("months", T):
        drift = numpyro.sample("drift", dist.Normal(0, 1))
    intercept = start + scale * jnp.cumsum(drift)
    with numpyro.plate("rows", t.shape[0]):
        numpyro.sample("y", dist.Normal(intercept[t] + beta * x, sigma), obs=y)


def time_varying_data() -> Data:
    t, x = np.repeat(np.arange(60), 5), np.random.default_rng(132).normal(size=300)
    return drawn(time_varying_intercept, 132, {"beta": 0.5, "scale": 0.2, "sigma": 0.5, "start": 0.0}, "y", t=t, x=x)


def holt_winters(y: Any) -> None:
    smoothing = numpyro.sample("smoothing", dist.Beta(1, 1))
    slope_smoothing = numpyro.sample("slope_smoothing", dist.Beta(1, 1))
    level_0 = numpyro.sample("level_0", dist.Normal(0, 1))
    slope_0 = numpyro.sample("slope_0", dist.Normal(0, 1))
    noise = numpyro.sample("noise", dist.HalfNormal(1))

    def step(carry: Any, t: Any) -> Any:
        level, slope = carry
        mu = level + slope
        seen = numpyro.sample("y", dist.Normal(mu, noise))
        new = smoothing * seen + (1 - smoothing) * mu
        slope = slope_smoothing * (new - level) + (1 - slope_smoothing) * slope
        return (new, slope), mu

    with numpyro.handlers.condition(data={"y": jnp.asarray(y)}):
        scan(step, (level_0, slope_0), jnp.arange(y.shape[0]))


def hierarchical_forecast(y: Any) -> None:
    n_groups = y.shape[1]
    rho = numpyro.sample("rho", dist.Uniform(0, 1))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    with numpyro.plate("groups", n_groups):
        level = numpyro.sample("level", dist.Normal(0, 1))

    def step(carry: Any, t: Any) -> Any:
        with numpyro.plate("groups_t", n_groups):
            seen = numpyro.sample("y", dist.Normal(rho * carry, noise))
        return seen, seen

    with numpyro.handlers.condition(data={"y": jnp.asarray(y)}):
        scan(step, level, jnp.arange(y.shape[0]))


def forecast_data() -> Data:
    rng = np.random.default_rng(133)
    y = np.zeros((80, 4))
    for t in range(1, 80):
        y[t] = 0.8 * y[t - 1] + 0.5 * rng.normal(size=4)
    return {"y": y}


def hmm(y: Any) -> None:
    theta = numpyro.sample("theta", dist.Dirichlet(jnp.array([[5.0, 1.0], [1.0, 5.0]])).to_event(1))
    mu = numpyro.sample("mu", dist.Normal(jnp.array([3.0, 10.0]), 1.0).to_event(1))

    def step(log_alpha: Any, y_t: Any) -> Any:
        new = logsumexp(log_alpha[:, None] + jnp.log(theta), axis=0) + dist.Normal(mu, 1.0).log_prob(y_t)
        return new, None

    start = jnp.log(0.5) + dist.Normal(mu, 1.0).log_prob(y[0])
    log_alpha, _ = jax.lax.scan(step, start, y[1:])
    numpyro.factor("y", logsumexp(log_alpha))


def hmm_data() -> Data:
    rng = np.random.default_rng(134)
    state, out = 0, []
    for _ in range(100):
        state = state if rng.uniform() < 0.8 else 1 - state
        out.append(rng.normal([3.0, 10.0][state]))
    return {"y": np.array(out)}


# ------------------------------------------------------------------------------------------ change points

COAL = np.array(
    [4, 5, 4, 0, 1, 4, 3, 4, 0, 6, 3, 3, 4, 0, 2, 6, 3, 3, 5, 4, 5, 3, 1, 4, 4, 1, 5, 5, 3, 4, 2, 5, 2, 2, 3, 4, 2]
    + [1, 3, 2, 1, 1, 1, 1, 3, 0, 0, 1, 0, 1, 1, 0, 0, 3, 1, 0, 3, 2, 2, 0, 1, 1, 1, 0, 1, 0, 1, 0, 0, 0, 2, 1, 0]
    + [0, 0, 1, 1, 0, 2, 3, 3, 2, 1, 1, 1, 1, 2, 4, 2, 0, 0, 1, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 1]
)


def coal_discrete(year: Any, disasters: Any = None) -> None:
    switch = numpyro.sample("switch", dist.DiscreteUniform(0, 106))
    early = numpyro.sample("early", dist.Exponential(1))
    late = numpyro.sample("late", dist.Exponential(1))
    rate = jnp.where(year <= switch, early, late)
    with numpyro.plate("years", year.shape[0]):
        numpyro.sample("disasters", dist.Poisson(rate), obs=disasters)


def coal_continuous(year: Any, disasters: Any = None) -> None:
    switch = numpyro.sample("switch", dist.Uniform(0, 107))
    early = numpyro.sample("early", dist.Exponential(1))
    late = numpyro.sample("late", dist.Exponential(1))
    rate = jnp.where(year <= switch, early, late)
    with numpyro.plate("years", year.shape[0]):
        numpyro.sample("disasters", dist.Poisson(rate), obs=disasters)


def coal_summed(year: Any, disasters: Any) -> None:
    """The same with the year of the change summed out, for NUTS."""
    early = numpyro.sample("early", dist.Exponential(1))
    late = numpyro.sample("late", dist.Exponential(1))
    before, after = dist.Poisson(early).log_prob(disasters), dist.Poisson(late).log_prob(disasters)
    numpyro.factor("sum", logsumexp(jnp.cumsum(before)[:-1] - jnp.cumsum(after)[:-1]) + after.sum())


def switch_of_rates(draws: dict[str, Any]) -> dict[str, Any]:
    """The time of the change, drawn exactly given draws of the two rates."""
    early, late = (np.asarray(draws[name])[..., None] for name in ("early", "late"))
    counts = np.cumsum(COAL)[:-1]
    years = np.arange(1, 108)
    logs = counts * np.log(early / late) - years * (early - late)
    rng = np.random.default_rng(0)
    year = np.argmax(logs + rng.gumbel(size=logs.shape), axis=-1)
    return {**draws, "switch": year + rng.uniform(size=year.shape)}


def year_of_rates(draws: dict[str, Any]) -> dict[str, Any]:
    """The same for a change that is a whole number."""
    return {**draws, "switch": np.floor(switch_of_rates(draws)["switch"]).astype(int)}


def coal_data() -> Data:
    """Disasters in British coal mines from 1851 on, without the missing years."""
    return {"year": np.arange(108.0), "disasters": COAL}


# --------------------------------------------------------------------------------------------- functions


def gp_regression(X: Any, Y: Any) -> None:
    var = numpyro.sample("kernel_var", dist.LogNormal(0.0, 1.0))
    noise = numpyro.sample("kernel_noise", dist.LogNormal(0.0, 1.0))
    length = numpyro.sample("kernel_length", dist.LogNormal(0.0, 1.0))
    deltaXsq = jnp.power((X[:, None] - X) / length, 2.0)
    k = var * jnp.exp(-0.5 * deltaXsq) + (noise + 1e-6) * jnp.eye(X.shape[0])
    numpyro.sample("Y", dist.MultivariateNormal(loc=jnp.zeros(X.shape[0]), covariance_matrix=k), obs=Y)


def gp_poisson(x: Any, k: Any) -> None:
    rho = numpyro.sample("rho", dist.Gamma(25, 4))
    alpha = numpyro.sample("alpha", dist.HalfNormal(2))
    f_tilde = numpyro.sample("f_tilde", dist.Normal(0, 1).expand([x.shape[0]]))
    cov = alpha**2 * jnp.exp(-0.5 * ((x[:, None] - x) / rho) ** 2) + 1e-6 * jnp.eye(x.shape[0])
    f = jnp.linalg.cholesky(cov) @ f_tilde
    numpyro.sample("k", dist.Poisson(jnp.exp(f)), obs=k)


def gp_data() -> Data:
    rng = np.random.default_rng(135)
    x = np.linspace(-1, 1, 30)
    return {"X": x, "Y": x + 0.2 * x**3 + 0.5 * np.sin(3 * x) + 0.15 * rng.normal(size=30)}


def gp_poisson_data() -> Data:
    x = np.linspace(-10, 10, 11)
    return {"x": x, "k": np.array([40, 37, 29, 12, 4, 3, 9, 19, 77, 82, 33])}


def hilbert_gp(x: Any, y: Any = None, m: int = 8, L: float = 1.5) -> None:
    alpha = numpyro.sample("alpha", dist.HalfNormal(1))
    length = numpyro.sample("length", dist.InverseGamma(3.0, 1.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    omega = jnp.arange(1, m + 1) * jnp.pi / (2 * L)
    phi = jnp.sin(omega * (x[:, None] + L)) / jnp.sqrt(L)
    spd = jnp.sqrt(alpha * jnp.sqrt(2 * jnp.pi) * length) * jnp.exp(-0.25 * (length * omega) ** 2)
    with numpyro.plate("basis", m):
        beta = numpyro.sample("beta", dist.Normal(0, 1))
    f = phi @ (spd * beta)
    with numpyro.plate("obs", x.shape[0]):
        numpyro.sample("y", dist.Normal(f, noise), obs=y)


def hilbert_gp_data() -> Data:
    rng = np.random.default_rng(136)
    x = np.linspace(-1, 1, 100)
    return {"x": x, "y": np.sin(4 * x) + 0.3 * rng.normal(size=100)}


# ------------------------------------------------------------------------------- differential equations


def _lynx(z: Any, t: Any, theta: Any) -> Any:
    u, v = z[0], z[1]
    alpha, beta, gamma, delta = theta[..., 0], theta[..., 1], theta[..., 2], theta[..., 3]
    return jnp.stack([(alpha - beta * v) * u, (-gamma + delta * u) * v])


def lotka_volterra(N: int, y: Any = None) -> None:
    z_init = numpyro.sample("z_init", dist.LogNormal(jnp.log(10), 1).expand([2]))
    ts = jnp.arange(float(N))
    theta = numpyro.sample(
        "theta",
        dist.TruncatedNormal(low=0.0, loc=jnp.array([1.0, 0.05, 1.0, 0.05]), scale=jnp.array([0.2, 0.01, 0.2, 0.01])),
    )
    z = odeint(_lynx, z_init, ts, theta, rtol=1e-6, atol=1e-5, mxstep=1000)
    sigma = numpyro.sample("sigma", dist.LogNormal(-1, 1).expand([2]))
    numpyro.sample("y", dist.LogNormal(jnp.log(z), sigma), obs=y)


def lynx_data() -> Data:
    values = {"z_init": [33.9, 5.9], "theta": [0.55, 0.028, 0.8, 0.024], "sigma": [0.25, 0.25]}
    return drawn(lotka_volterra, 137, values, "y", N=21)


def sir(N: int, cases: Any) -> None:
    beta = numpyro.sample("beta", dist.HalfNormal(2))
    gamma = numpyro.sample("gamma", dist.HalfNormal(0.5))
    phi_inv = numpyro.sample("phi_inv", dist.Exponential(5))

    def day(state: Any, _: Any) -> Any:
        s, i = state
        new, gone = beta * i * s / N, gamma * i
        return (s - new, i + new - gone), i + new - gone

    _, infected = jax.lax.scan(day, (N - 1.0, 1.0), jnp.arange(cases.shape[0]))
    numpyro.sample("cases", dist.NegativeBinomial2(infected, 1 / phi_inv), obs=cases)


def boarding_school_data() -> Data:
    """Boys in bed in an English boarding school in 1978, fourteen days."""
    return {"N": 763, "cases": np.array([3, 8, 26, 76, 225, 298, 258, 233, 189, 128, 68, 29, 14, 4])}


def _elimination(c: Any, t: Any, ka: Any, vm: Any, km: Any) -> Any:
    return jnp.exp(-ka * t) * ka - vm * c / (km + c)


def michaelis_menten(t: Any, concentration: Any = None) -> None:
    ka = numpyro.sample("ka", dist.LogNormal(0.0, 0.5))
    vm = numpyro.sample("vm", dist.LogNormal(-1.0, 0.5))
    km = numpyro.sample("km", dist.LogNormal(-1.0, 0.5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    times = jnp.concatenate([jnp.zeros(1), t])
    c = odeint(_elimination, jnp.zeros(()), times, ka, vm, km, rtol=1e-6, atol=1e-6, mxstep=1000)[1:]
    numpyro.sample("concentration", dist.LogNormal(jnp.log(c), sigma), obs=concentration)


def michaelis_menten_data() -> Data:
    values = {"ka": 1.0, "vm": 0.4, "km": 0.4, "sigma": 0.15}
    return drawn(michaelis_menten, 138, values, "concentration", t=np.linspace(0.3, 4.0, 20))


def lynx_rates(prey: Any, predator: Any, change: Any = None) -> None:
    alpha = numpyro.sample("alpha", dist.TruncatedNormal(1.0, 0.5, low=0.0))
    beta = numpyro.sample("beta", dist.TruncatedNormal(0.05, 0.05, low=0.0))
    sigma = numpyro.sample("sigma", dist.LogNormal(-1, 1))
    with numpyro.plate("years", prey.shape[0]):
        numpyro.sample("change", dist.Normal(alpha - beta * predator, sigma), obs=change)


def lynx_rates_data() -> Data:
    z = np.asarray(lynx_data()["y"])
    return {"prey": z[:-1, 0], "predator": z[:-1, 1], "change": np.diff(np.log(z[:, 0]))}
