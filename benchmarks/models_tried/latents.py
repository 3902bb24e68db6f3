"""Published models with mixtures, hidden states of rows, factors and networks, as users of NumPyro write them."""

# NumPyro declares a sample as an array or a number, so that pyright finds fault with every index into a latent.
# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro.distributions import constraints
from numpyro.distributions.transforms import OrderedTransform

from benchmarks.models_tried.simulate import drawn

Data = dict[str, Any]

# ------------------------------------------------------------------------------------------------ mixtures


def mixture_two(y: Any) -> None:
    mu = numpyro.sample("mu", dist.TransformedDistribution(dist.Normal(0, 2).expand([2]), OrderedTransform()))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2).expand([2]))
    theta = numpyro.sample("theta", dist.Beta(5, 5))
    mixing = dist.Categorical(probs=jnp.stack([theta, 1 - theta]))
    with numpyro.plate("N", y.shape[0]):
        numpyro.sample("y", dist.MixtureSameFamily(mixing, dist.Normal(mu, sigma)), obs=y)


def mixture_two_data() -> Data:
    rng = np.random.default_rng(100)
    first = rng.uniform(size=1000) < 0.38
    return {"y": np.where(first, rng.normal(-2.75, 0.95, 1000), rng.normal(2.75, 1.0, 1000))}


def mixture_assigned(data: Any, K: int = 2) -> None:
    weights = numpyro.sample("weights", dist.Dirichlet(0.5 * jnp.ones(K)))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 2.0))
    with numpyro.plate("components", K):
        locs = numpyro.sample("locs", dist.Normal(0.0, 10.0))
    with numpyro.plate("data", len(data)):
        assignment = numpyro.sample("assignment", dist.Categorical(weights))
        numpyro.sample("obs", dist.Normal(locs[assignment], scale), obs=data)


def mixture_assigned_data() -> Data:
    """The five numbers of Pyro's and NumPyro's tutorials."""
    return {"data": np.array([0.0, 1.0, 10.0, 11.0, 12.0])}


def mixture_three(y: Any) -> None:
    mu = numpyro.sample("mu", dist.TransformedDistribution(dist.Normal(0, 3).expand([3]), OrderedTransform()))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1).expand([3]))
    w = numpyro.sample("w", dist.Dirichlet(jnp.full(3, 2.0)))
    with numpyro.plate("N", y.shape[0]):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(w), dist.Normal(mu, sigma)), obs=y)


def mixture_three_data() -> Data:
    rng = np.random.default_rng(101)
    which = rng.choice(3, 300, p=[0.3, 0.4, 0.3])
    return {"y": rng.normal(np.array([-3.0, 0.0, 3.0])[which], np.array([0.7, 0.5, 0.8])[which])}


def regression_outliers(x: Any, y: Any, sigma0: float = 0.3) -> None:
    a = numpyro.sample("a", dist.Normal(0, 5))
    b = numpyro.sample("b", dist.Normal(0, 5))
    bad = numpyro.sample("bad", dist.Beta(1, 5))
    spread = numpyro.sample("spread", dist.HalfNormal(5))
    mu = a + b * x
    mixing = dist.Categorical(probs=jnp.stack([1 - bad, bad]))
    with numpyro.plate("N", x.shape[0]):
        good, rest = dist.Normal(mu, sigma0), dist.Normal(mu, sigma0 + spread)
        numpyro.sample("y", dist.MixtureGeneral(mixing, [good, rest]), obs=y)


def outliers_data() -> Data:
    rng = np.random.default_rng(102)
    x = rng.uniform(-2, 2, 60)
    y = 1.0 + 2.0 * x + 0.3 * rng.normal(size=60)
    y[::9] += rng.normal(0.0, 4.0, 7)
    return {"x": x, "y": y}


# ------------------------------------------------------------------------------------------ hidden states


def dawid_skene(annotator: Any, annotations: Any, K: int = 4, J: int = 5) -> None:
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.full(K, 3.0)))
    guide = jnp.where(jnp.eye(K) > 0, 2.5 * K, 1.0)
    with numpyro.plate("annotators", J, dim=-2), numpyro.plate("classes", K, dim=-1):
        theta = numpyro.sample("theta", dist.Dirichlet(guide))
    with numpyro.plate("items", annotations.shape[0], dim=-2):
        c = numpyro.sample("c", dist.Categorical(pi), infer={"enumerate": "parallel"})
        with numpyro.plate("positions", annotations.shape[1], dim=-1):
            numpyro.sample("y", dist.Categorical(theta[annotator, c]), obs=annotations)


def dawid_skene_summed(annotator: Any, annotations: Any, K: int = 4, J: int = 5) -> None:
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.full(K, 3.0)))
    guide = jnp.where(jnp.eye(K) > 0, 2.5 * K, 1.0)
    with numpyro.plate("annotators", J, dim=-2), numpyro.plate("classes", K, dim=-1):
        theta = numpyro.sample("theta", dist.Dirichlet(guide))
    logs = jnp.log(theta)[annotator[None, :], :, annotations].sum(1) + jnp.log(pi)
    numpyro.factor("y", logsumexp(logs, axis=-1))


def dawid_skene_data() -> Data:
    rng = np.random.default_rng(103)
    truth = rng.choice(4, 45, p=[0.4, 0.4, 0.1, 0.1])
    confusion = 0.8 * np.eye(4) + 0.05
    annotator = np.array([0, 0, 0, 1, 2, 3, 4])
    votes = np.array([[rng.choice(4, p=confusion[c]) for _ in annotator] for c in truth])
    return {"annotator": annotator, "annotations": votes}


def occupancy(cover: Any, y: Any) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 1.5).expand([2]))
    alpha = numpyro.sample("alpha", dist.Normal(0, 1.5))
    psi = jax.nn.sigmoid(beta[0] + beta[1] * cover)
    with numpyro.plate("sites", y.shape[0], dim=-2):
        z = numpyro.sample("z", dist.Bernoulli(psi[:, None]), infer={"enumerate": "parallel"})
        with numpyro.plate("visits", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Bernoulli(z * jax.nn.sigmoid(alpha)), obs=y)


def occupancy_summed(cover: Any, y: Any) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 1.5).expand([2]))
    alpha = numpyro.sample("alpha", dist.Normal(0, 1.5))
    logit = beta[0] + beta[1] * cover
    seen = (y * jax.nn.log_sigmoid(alpha) + (1 - y) * jax.nn.log_sigmoid(-alpha)).sum(1)
    present = jax.nn.log_sigmoid(logit) + seen
    absent = jnp.where(y.sum(1) == 0, jax.nn.log_sigmoid(-logit), -jnp.inf)
    numpyro.factor("y", jnp.logaddexp(present, absent))


def occupancy_data() -> Data:
    rng = np.random.default_rng(104)
    cover = rng.normal(size=200)
    z = rng.uniform(size=200) < 1 / (1 + np.exp(-(0.3 + cover)))
    return {"cover": cover, "y": (z[:, None] & (rng.uniform(size=(200, 3)) < 0.4)).astype(int)}


def n_mixture(counts: Any) -> None:
    lam = numpyro.sample("lam", dist.Gamma(2.0, 0.2))
    p = numpyro.sample("p", dist.Beta(1, 1))
    with numpyro.plate("sites", counts.shape[0], dim=-2):
        N = numpyro.sample("N", dist.Poisson(lam))
        with numpyro.plate("visits", counts.shape[1], dim=-1):
            numpyro.sample("counts", dist.Binomial(N, probs=p), obs=counts)


def n_mixture_summed(counts: Any, K: int = 60) -> None:
    lam = numpyro.sample("lam", dist.Gamma(2.0, 0.2))
    p = numpyro.sample("p", dist.Beta(1, 1))
    N = jnp.arange(K + 1)
    counts = jnp.asarray(counts)
    with numpyro.plate("sites", counts.shape[0]):
        possible = counts[:, :, None] <= N
        logs = dist.Binomial(jnp.where(possible, N, counts[:, :, None]), probs=p).log_prob(counts[:, :, None])
        logs = jnp.where(possible, logs, -jnp.inf).sum(1) + dist.Poisson(lam).log_prob(N)
        numpyro.factor("counts", logsumexp(logs, axis=-1))


def n_mixture_data() -> Data:
    rng = np.random.default_rng(105)
    return {"counts": rng.binomial(rng.poisson(8.0, 100)[:, None], 0.4, (100, 3))}


def capture_m0(y: Any, T: int = 5) -> None:
    omega = numpyro.sample("omega", dist.Beta(1, 1))
    p = numpyro.sample("p", dist.Beta(1, 1))
    with numpyro.plate("animals", y.shape[0]):
        z = numpyro.sample("z", dist.Bernoulli(omega), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Binomial(T, probs=z * p), obs=y)


def capture_m0_summed(y: Any, T: int = 5) -> None:
    omega = numpyro.sample("omega", dist.Beta(1, 1))
    p = numpyro.sample("p", dist.Beta(1, 1))
    present = jnp.log(omega) + dist.Binomial(T, probs=p).log_prob(y)
    numpyro.factor("y", jnp.where(y == 0, jnp.logaddexp(present, jnp.log1p(-omega)), present))


def capture_m0_data() -> Data:
    rng = np.random.default_rng(106)
    return {"y": rng.binomial(5, 0.4, 250) * (np.arange(250) < 100)}


def cjs(capture: Any, first: Any, last: Any) -> None:
    T = capture.shape[1]
    phi = numpyro.sample("phi", dist.Uniform(0, 1))
    p = numpyro.sample("p", dist.Uniform(0, 1))
    chi = [jnp.ones(())]
    for _ in range(T - 1):
        chi.append(1 - phi + phi * (1 - p) * chi[-1])
    never_again = jnp.log(jnp.stack(chi[::-1]))
    time = jnp.arange(T)
    between = (time > first[:, None]) & (time <= last[:, None])
    seen = jnp.where(capture == 1, jnp.log(p), jnp.log1p(-p)) + jnp.log(phi)
    with numpyro.plate("animals", capture.shape[0]):
        numpyro.factor("capture", jnp.where(between, seen, 0.0).sum(1) + never_again[last])


def dippers_data() -> Data:
    rng = np.random.default_rng(107)
    first = rng.integers(0, 6, 255)
    capture = np.zeros((255, 7), int)
    for i, start in enumerate(first):
        capture[i, start] = 1
        for t in range(start + 1, 7):
            if rng.uniform() > 0.56:
                break
            capture[i, t] = rng.uniform() < 0.9
    last = 6 - np.argmax(capture[:, ::-1], axis=1)
    return {"capture": capture, "first": first, "last": last}


# ------------------------------------------------------------------------------------ factors and networks


def factor_analysis(X: Any) -> None:
    N, D = X.shape
    mu = numpyro.sample("mu", dist.Normal(0, 2).expand([D]).to_event(1))
    loading = numpyro.sample("loading", dist.HalfNormal(1).expand([D]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1).expand([D]).to_event(1))
    with numpyro.plate("people", N):
        z = numpyro.sample("z", dist.Normal(0, 1))
        numpyro.sample("X", dist.Normal(mu + z[:, None] * loading, sigma).to_event(1), obs=X)


def factor_analysis_data() -> Data:
    rng = np.random.default_rng(110)
    z = rng.normal(size=(150, 1))
    return {"X": z * np.array([0.8, 0.6, 1.0, 0.5]) + 0.5 * rng.normal(size=(150, 4))}


def ppca(X: Any, K: int = 2) -> None:
    N, D = X.shape
    W = numpyro.sample("W", dist.Normal(0, 1).expand([K, D]).to_event(2))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("rows", N):
        z = numpyro.sample("z", dist.Normal(0, 1).expand([K]).to_event(1))
        numpyro.sample("X", dist.Normal(z @ W, sigma).to_event(1), obs=X)


def ppca_data() -> Data:
    rng = np.random.default_rng(111)
    W = np.array([[1.0, 0.8, 0.0, -0.5], [0.0, 0.5, 1.0, 0.7]])
    return {"X": rng.normal(size=(100, 2)) @ W + 0.3 * rng.normal(size=(100, 4))}


def ppca_marginal(X: Any, K: int = 2) -> None:
    N, D = X.shape
    W = numpyro.sample("W", dist.Normal(0, 1).expand([K, D]).to_event(2))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("rows", N):
        numpyro.sample("X", dist.LowRankMultivariateNormal(jnp.zeros(D), W.T, jnp.full(D, sigma**2)), obs=X)


def matrix_factorisation(user: Any, film: Any, rating: Any = None, users: int = 50, films: int = 20) -> None:
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("users", users):
        u = numpyro.sample("u", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("films", films):
        v = numpyro.sample("v", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("ratings", user.shape[0]):
        numpyro.sample("rating", dist.Normal((u[user] * v[film]).sum(-1), sigma), obs=rating)


def matrix_factorisation_data() -> Data:
    rng = np.random.default_rng(112)
    which = rng.choice(1000, 500, replace=False)
    return drawn(matrix_factorisation, 112, {"sigma": 0.4}, "rating", user=which // 20, film=which % 20)


def lda(doc: Any, word: Any = None, docs: int = 10, topics: int = 2, words: int = 8) -> None:
    with numpyro.plate("topics", topics):
        topic_words = numpyro.sample("topic_words", dist.Dirichlet(jnp.ones(words) / 2))
    with numpyro.plate("documents", docs):
        doc_topics = numpyro.sample("doc_topics", dist.Dirichlet(jnp.ones(topics)))
    with numpyro.plate("words", doc.shape[0]):
        numpyro.sample("word", dist.Categorical(probs=doc_topics[doc] @ topic_words), obs=word)


def lda_data() -> Data:
    return drawn(lda, 113, {}, "word", doc=np.repeat(np.arange(10), 20))


def bayesian_network(X: Any, Y: Any, D_H: int = 5) -> None:
    N, D_X = X.shape
    w1 = numpyro.sample("w1", dist.Normal(jnp.zeros((D_X, D_H)), jnp.ones((D_X, D_H))))
    z1 = jnp.tanh(jnp.matmul(X, w1))
    w2 = numpyro.sample("w2", dist.Normal(jnp.zeros((D_H, D_H)), jnp.ones((D_H, D_H))))
    z2 = jnp.tanh(jnp.matmul(z1, w2))
    w3 = numpyro.sample("w3", dist.Normal(jnp.zeros((D_H, 1)), jnp.ones((D_H, 1))))
    z3 = jnp.matmul(z2, w3)
    prec_obs = numpyro.sample("prec_obs", dist.Gamma(3.0, 1.0))
    sigma_obs = 1.0 / jnp.sqrt(prec_obs)
    with numpyro.plate("data", N):
        numpyro.sample("Y", dist.Normal(z3, sigma_obs).to_event(1), obs=Y)


def network_data() -> Data:
    rng = np.random.default_rng(114)
    x = np.linspace(-1, 1, 100)
    y = x + 0.3 * x**2 + 0.5 * x**3 + 0.2 * np.cos(4 * x) + 0.05 * rng.normal(size=100)
    return {"X": np.stack([x**0, x, x**2], 1), "Y": ((y - y.mean()) / y.std())[:, None]}


def gaussian_copula(y: Any) -> None:
    a = numpyro.sample("a", dist.LogNormal(0.5, 0.5).expand([2]).to_event(1))
    b = numpyro.sample("b", dist.LogNormal(0.5, 0.5).expand([2]).to_event(1))
    rho = numpyro.sample("rho", dist.Uniform(-1, 1))
    correlation = jnp.array([[1.0, 0.0], [0.0, 1.0]]) + rho * jnp.array([[0.0, 1.0], [1.0, 0.0]])
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.GaussianCopulaBeta(a, b, correlation_matrix=correlation), obs=y)


def gaussian_copula_data() -> Data:
    from scipy import stats

    rng = np.random.default_rng(115)
    u = stats.norm.cdf(rng.multivariate_normal([0, 0], [[1.0, 0.6], [0.6, 1.0]], 120))
    return {"y": np.column_stack([stats.beta.ppf(u[:, 0], 2, 3), stats.beta.ppf(u[:, 1], 1.5, 1.2)])}


def bivariate_normal(y: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, 2).expand([3]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2).expand([3]).to_event(1))
    L = numpyro.sample("L", dist.LKJCholesky(3, concentration=1.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.MultivariateNormal(mu, scale_tril=sigma[:, None] * L), obs=y)


def bivariate_normal_data() -> Data:
    cov = np.array([[1.0, 0.5, -0.2], [0.5, 1.5, 0.1], [-0.2, 0.1, 0.6]])
    return {"y": np.random.default_rng(116).multivariate_normal([1.0, 0.0, -1.0], cov, 150)}


def monotonic(education: Any, y: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(0, 2))
    b = numpyro.sample("b", dist.Normal(0, 2))
    delta = numpyro.sample("delta", dist.Dirichlet(jnp.full(4, 2.0)))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    share = jnp.concatenate([jnp.zeros(1), jnp.cumsum(delta)])
    numpyro.sample("y", dist.Normal(a + b * share[education], sigma), obs=y)


def monotonic_data() -> Data:
    values = {"a": 1.0, "b": 2.0, "delta": [0.1, 0.5, 0.3, 0.1], "sigma": 0.6}
    return drawn(monotonic, 117, values, "y", education=np.random.default_rng(117).integers(0, 5, 200))


def dirichlet_regression(x: Any, shares: Any = None) -> None:
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    concentration = jnp.exp(w[0] + x[:, None] * w[1])
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("shares", dist.Dirichlet(concentration), obs=shares)


def dirichlet_regression_data() -> Data:
    x = np.random.default_rng(118).normal(size=80)
    return drawn(dirichlet_regression, 118, {"w": [[1.0, 1.5, 0.8], [0.5, -0.3, 0.0]]}, "shares", x=x)


def positive_only(y: Any) -> None:
    rate = numpyro.sample("rate", dist.ImproperUniform(constraints.positive, (), ()))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Exponential(rate), obs=y)
