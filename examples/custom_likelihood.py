"""A likelihood of your own: some customers cancel, some never cancel, and most are still customers today.

    python examples/custom_likelihood.py [--out DIR]

The likelihood is a mixture cure model, which NumPyro does not have. A share of the customers stays for ever, the others
leave after a time with a Weibull distribution, and customers who have not left yet are censored. The likelihood is an
ordinary NumPyro distribution with a `log_prob` and no other method, and is not registered with adfpp. One online pass
and NUTS use the same model and the same rows. The script prints the two posteriors side by side, and draws the share of
customers who remain under both.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.infer import MCMC, NUTS
from scipy.stats import norm

import adfpp

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PLANS = ("monthly plan", "yearly plan")
STAY, LOG_SCALE, LOG_SHAPE = np.array([-0.8, 0.6]), np.log(6.0), np.log(1.5)  # the truth
TITLES = {
    "stay[0]": "logit of the share that stays,\nmonthly plan",
    "stay[1]": "logit of the share that stays,\nyearly plan",
    "log_scale": "log of the Weibull scale\n(months)",
    "log_shape": "log of the Weibull shape",
}


class CureWeibull(dist.Distribution):
    """Time to an event that a share of the population never has.

    If the event was seen, `log_prob` is the log density of its time, else the log probability of no event until then.
    """

    arg_constraints = {
        "stay": constraints.real,
        "log_scale": constraints.real,
        "log_shape": constraints.real,
        "seen": constraints.boolean,
    }
    support: Any = constraints.positive

    def __init__(self, stay: Any, log_scale: Any, log_shape: Any, seen: Any, *, validate_args: Any = None) -> None:
        self.stay, self.log_scale, self.log_shape, self.seen = stay, log_scale, log_shape, seen
        shape = jnp.broadcast_shapes(*(jnp.shape(a) for a in (stay, log_scale, log_shape, seen)))
        super().__init__(shape, (), validate_args=validate_args)

    def log_prob(self, value: Any) -> Any:
        """Log density of an event at `value` if it was seen, else log probability of no event until then."""
        shape = jnp.exp(self.log_shape)
        log_time = jnp.log(value) - self.log_scale
        hazard = jnp.exp(shape * log_time)  # cumulative until `value`, for those who will leave
        leave_at = -jax.nn.softplus(self.stay) + self.log_shape + shape * log_time - jnp.log(value) - hazard
        until_now = jnp.logaddexp(jax.nn.log_sigmoid(self.stay), jax.nn.log_sigmoid(-self.stay) - hazard)
        return jnp.where(self.seen, leave_at, until_now)


def model(plan: Any, seen: Any, time: Any = None) -> None:
    """Customers of two plans, with different shares that stay and the same distribution of the time to leave."""
    stay: Any = numpyro.sample("stay", dist.Normal(0, 1.5).expand([2]).to_event(1))
    log_scale = numpyro.sample("log_scale", dist.Normal(1, 1))
    log_shape = numpyro.sample("log_shape", dist.Normal(0, 0.5))
    with numpyro.plate("rows", plan.shape[0]):
        numpyro.sample("time", CureWeibull(stay[plan], log_scale, log_shape, seen), obs=time)


def simulate(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    """Customers who joined within the last two years, with what is known about them today; times in months."""
    plan = rng.integers(0, 2, rows)
    stays = rng.random(rows) < 1 / (1 + np.exp(-STAY[plan]))
    leaves_after = np.where(stays, np.inf, np.exp(LOG_SCALE) * rng.weibull(np.exp(LOG_SHAPE), rows))
    joined = rng.uniform(1, 24, rows)  # months ago
    return {"plan": plan, "seen": leaves_after < joined, "time": np.minimum(leaves_after, joined)}


def remaining(stay: np.ndarray, log_scale: np.ndarray, log_shape: np.ndarray, months: np.ndarray) -> np.ndarray:
    """Share of customers who remain after so many months, (draws, months), for draws of the parameters."""
    share = 1 / (1 + np.exp(-np.asarray(stay)[:, None]))
    scale, shape = np.exp(np.asarray(log_scale))[:, None], np.exp(np.asarray(log_shape))[:, None]
    return share + (1 - share) * np.exp(-((months / scale) ** shape))


def kaplan_meier(time: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The Kaplan-Meier estimate of the same curve, which needs no model: the corners of its steps."""
    order = np.argsort(time)
    at_risk = len(time) - np.arange(len(time))
    return np.append(0, time[order]), np.append(1, np.cumprod(1 - seen[order] / at_risk))


def columns(draws: dict[str, Any]) -> dict[str, np.ndarray]:
    """Draws of each scalar, by the names in `TITLES`."""
    stay = np.asarray(draws["stay"])
    return {
        "stay[0]": stay[:, 0],
        "stay[1]": stay[:, 1],
        "log_scale": np.asarray(draws["log_scale"]),
        "log_shape": np.asarray(draws["log_shape"]),
    }


def picture(path: Path, data: dict[str, Any], online: dict[str, Any], nuts: dict[str, Any]) -> None:
    """Left: the curves of both plans. Right: the four marginal posteriors."""
    figure = plt.figure(figsize=(12, 5), constrained_layout=True)
    parts: Any = figure.subfigures(1, 2, width_ratios=(1.1, 1))
    curves, marginals = parts
    axis = curves.subplots()
    months = np.linspace(0, 30, 121)
    for k, (name, colour) in enumerate(zip(PLANS, ("C0", "C1"), strict=True)):
        of_plan = data["plan"] == k
        steps = kaplan_meier(data["time"][of_plan], data["seen"][of_plan])
        axis.step(*steps, where="post", color="0.5", lw=1, label=None if k else "Kaplan–Meier estimate (no model)")
        band = np.quantile(
            remaining(online["stay"][:, k], online["log_scale"], online["log_shape"], months), (0.05, 0.95), 0
        )
        axis.fill_between(months, *band, color=colour, alpha=0.3, lw=0, label=f"{name}: online, 90% interval")
        band = np.quantile(remaining(nuts["stay"][:, k], nuts["log_scale"], nuts["log_shape"], months), (0.05, 0.95), 0)
        for edge, label in zip(band, (f"{name}: NUTS, 90% interval", None), strict=True):
            axis.plot(months, edge, color=colour, ls="--", lw=1.2, label=label)
    axis.axvline(data["time"].max(), color="0.8", lw=1)
    axis.text(data["time"].max() + 0.3, 0.97, "nobody was\nobserved longer", fontsize=8, color="0.4", va="top")
    axis.set(xlabel="months since joining", ylabel="share of customers who remain", xlim=(0, 30), ylim=(0, 1.0))
    axis.legend(fontsize=8, loc="lower left")
    axis.set_title(f"Customers who remain, {len(data['time'])} rows", fontsize=10)

    by_name, reference = columns(online), columns(nuts)
    truth = dict(zip(TITLES, (*STAY, LOG_SCALE, LOG_SHAPE), strict=True))
    for axis, (name, title) in zip(marginals.subplots(2, 2).flat, TITLES.items(), strict=True):
        mean, sd = by_name[name].mean(), by_name[name].std()
        grid = np.linspace(mean - 4 * sd, mean + 4 * sd, 200)
        axis.hist(reference[name], bins=30, density=True, color="0.8", label="NUTS")
        axis.plot(grid, norm.pdf(grid, mean, sd), color="C2", label="online, one pass")
        axis.axvline(truth[name], color="k", ls=":", lw=1.2, label="truth")
        axis.set_xlabel(title, fontsize=9)
        axis.set_yticks([])
        axis.set_ylim(0, 1.35 * axis.get_ylim()[1])
        if name == "stay[0]":
            axis.legend(fontsize=7, loc="upper left", ncols=3, columnspacing=1, handlelength=1.2, framealpha=1)
    marginals.suptitle("Posterior of the parameters", fontsize=10)
    figure.suptitle(
        "A likelihood that NumPyro does not have (mixture cure model), learned online and by NUTS from the same rows"
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Runs the example."""
    parser = argparse.ArgumentParser(description="A likelihood of your own, online and by NUTS.")
    parser.add_argument("--out", type=Path, default=Path("example_output"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    data = simulate(np.random.default_rng(0), 1000)
    print(f"{len(data['time'])} customers, {data['seen'].sum()} of them have cancelled\n")

    adf = adfpp.ADF(model)
    print(adf.explain(**data), end="\n\n")
    result = adf.run(jax.random.key(0), **data, progress_bar=False)
    post = adf.get_posterior(result.state)

    nuts = MCMC(NUTS(model), num_warmup=300, num_samples=1000, progress_bar=False)
    nuts.run(jax.random.key(1), **data)

    draws = nuts.get_samples()
    table = post.summary()[["mean", "sd"]]
    reference = columns(draws)
    table["NUTS mean"] = [reference[name].mean() for name in table.index]
    table["NUTS sd"] = [reference[name].std() for name in table.index]
    table["off by (sd)"] = (table["mean"] - table["NUTS mean"]) / table["NUTS sd"]
    print(table.round(3).to_string())
    print(f"\nlog evidence, from one-step-ahead predictions: {result.info.log_z.sum():.2f}")

    path = options.out / "custom_likelihood.png"
    picture(path, data, post.sample(jax.random.key(2), (4000,)), draws)
    print(f"picture: {path}")


if __name__ == "__main__":
    numpyro.set_platform("cpu")
    main()
