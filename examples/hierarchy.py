"""A hierarchy on a stream: the levels of shops and their spread, by one pass, EP and NUTS.

    python examples/hierarchy.py [--out DIR]

The levels of forty shops of very different size have a common mean and a spread. No row depends on these two directly:
each row contains information on its own shop only. ADF learns the spread as the rows arrive; EP visits the rows again;
NUTS is the reference. The script prints the errors of ADF and EP against NUTS, and draws the estimates of the levels.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import adfpp

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SHOPS = 40


def model(shop: Any, y: Any = None) -> None:
    """Shops around a common mean, in the centred form: adfpp makes factors of the prior of ``level``."""
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    spread = numpyro.sample("spread", dist.HalfNormal(2))
    noise = numpyro.sample("noise", dist.HalfNormal(2))
    with numpyro.plate("shops", SHOPS):
        level = numpyro.sample("level", dist.Normal(mean, spread))
    with numpyro.plate("rows", shop.shape[0]):
        numpyro.sample("y", dist.Normal(level[shop], noise), obs=y)


def simulate() -> tuple[np.ndarray, np.ndarray]:
    """600 sales in random order; a few shops have most of them."""
    rng = np.random.default_rng(0)
    share = rng.gamma(0.6, size=SHOPS) + 0.02
    shop = rng.choice(SHOPS, size=600, p=share / share.sum())
    level = 1.0 + 0.5 * rng.normal(size=SHOPS)
    return shop, level[shop] + rng.normal(size=600)


def picture(path: Path, posteriors: dict[str, adfpp.Posterior], draws: Any, shop: np.ndarray, y: np.ndarray) -> None:
    """Left: for each shop, its own mean and the estimates. Right: the spread of the shops by all three methods."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8), width_ratios=(2, 1), constrained_layout=True)
    count = np.bincount(shop, minlength=SHOPS)
    order = np.argsort(-count, kind="stable")
    places = np.arange(SHOPS)
    reference = np.asarray(draws["level"])[:, order]
    left.bar(
        places, 2 * reference.std(0), 0.9, reference.mean(0) - reference.std(0), color="0.88", label="NUTS: mean ± sd"
    )
    sums = np.bincount(shop, y, minlength=SHOPS)
    seen = count[order] > 0
    left.plot(
        places[seen], (sums / np.maximum(count, 1))[order][seen], "_", color="0.3", ms=9, label="the shop's own mean"
    )
    for (name, post), colour, shift in zip(posteriors.items(), ("C0", "C1"), (-0.2, 0.2), strict=True):
        mean, sd = np.asarray(post.mean()["level"])[order], np.asarray(post.sd()["level"])[order]
        left.errorbar(places + shift, mean, sd, fmt="o", ms=3, lw=1, color=colour, label=name)
    left.set_xticks(places[::3], count[order][::3])
    left.set(xlabel="shops, by their number of rows", ylabel="level of the shop")
    left.set_title("Small shops are pulled towards the common mean, as far as the spread allows", fontsize=10)
    left.legend(fontsize=8, ncols=2)

    right.hist(np.asarray(draws["spread"]), 60, density=True, color="0.85", label="NUTS")
    grid = np.linspace(0.05, 1.2, 400)
    for (name, post), colour in zip(posteriors.items(), ("C0", "C1"), strict=True):
        where = next(latent.where for latent in post.latents if latent.name == "spread")
        mean = float(post.belief.mean[where][0])
        sd = float(post.family.spread(post.belief, post.program.size)[where][0])
        density = np.exp(-0.5 * ((np.log(grid) - mean) / sd) ** 2) / (grid * sd * np.sqrt(2 * np.pi))
        right.plot(grid, density, color=colour, label=name)
    right.set(xlabel="spread of the shops", ylabel="posterior density")
    right.set_title("The spread, which no row depends on directly", fontsize=10)
    right.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Runs the example."""
    parser = argparse.ArgumentParser(description="A hierarchy learned on a stream, and by expectation propagation.")
    parser.add_argument("--out", type=Path, default=Path("example_output"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    shop, y = simulate()
    key = jax.random.key(0)

    adf, ep = adfpp.ADF(model), adfpp.EP(model)
    print(ep.explain(shop, y=y), end="\n\n")
    online = adf.run(key, shop, y=y, chunk_size=32, progress_bar=False)  # visits the prior factors after every chunk
    revisited = ep.run(key, shop, y=y, state=online, progress_bar=False)
    mcmc = MCMC(NUTS(model), num_warmup=500, num_samples=2000, progress_bar=False)
    mcmc.run(jax.random.key(1), shop, y=y)
    draws = mcmc.get_samples()

    posteriors = {"one online pass": online.posterior, f"EP, {revisited.info.sweeps} sweeps": revisited.posterior}
    theta = np.asarray(online.posterior.program.unconstrain(draws)[0])
    names = [latent.name for latent in online.posterior.latents for _ in range(latent.size)]
    for name, post in posteriors.items():
        mean, sd = np.asarray(post.belief.mean), np.asarray(post.family.spread(post.belief, post.program.size))
        error, ratio = (mean - theta.mean(0)) / theta.std(0), sd / theta.std(0)
        worst = int(np.argmax(np.abs(error)))
        i = names.index("spread")
        print(
            f"{name}: largest error of a mean {abs(error[worst]):.2f} sd ({names[worst]}), sds {ratio.min():.2f} to "
            f"{ratio.max():.2f} of NUTS's; log spread {error[i]:+.2f} sd, its sd {ratio[i]:.2f} of NUTS's"
        )
    print(f"log evidence by EP: {revisited.log_evidence:.2f}")
    path = options.out / "hierarchy.png"
    picture(path, posteriors, draws, shop, y)
    print(f"picture: {path}")


if __name__ == "__main__":
    numpyro.set_platform("cpu")
    numpyro.enable_x64()
    main()
