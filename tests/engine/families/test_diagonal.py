"""The diagonal family against moment matching one number at a time, written out by quadrature."""

from typing import Any

import jax
import numpy as np
from scipy.integrate import quad
from scipy.stats import norm

import adfpp
from tests.engine.families.common import step


def tilted(mean: float, sd: float, sign: float, slope: float, offset: float, spread: float) -> list[float]:
    """The integrals of w^p N(w; mean, sd²) Φ(sign (offset + slope w) / spread) for p = 0, 1, 2."""

    def weight(w: float, power: int) -> Any:
        return w**power * norm.pdf(w, mean, sd) * norm.cdf(sign * (offset + slope * w) / spread)

    ends = mean - 9 * sd, mean + 9 * sd
    return [quad(weight, *ends, args=(p,), epsabs=1e-13, epsrel=1e-12)[0] for p in range(3)]


def test_each_number_gets_its_own_tilted_moments() -> None:
    """After each row, a number's mean and sd are those of its exact marginal under the independent belief before."""
    rng = np.random.default_rng(8)
    x, y, noise = rng.normal(size=(6, 3)), np.array([1, 0, 1, 1, 0, 1]), 0.7
    adf = adfpp.ADF(step, family="diagonal")
    state, info = adf.update(adf.init(jax.random.key(0), x, y=y, noise=noise), x, y=y, noise=noise)
    mean, sd, evidence, total = np.zeros(3), np.ones(3), [], 1.0
    for row, label in zip(x, 2 * y - 1, strict=True):
        before = mean.copy(), sd.copy()
        for i in range(3):
            rest = np.arange(3) != i
            # the other two numbers and the noise together are Gaussian
            others = before[0][rest] @ row[rest]
            spread = np.sqrt(noise**2 + np.sum((before[1][rest] * row[rest]) ** 2))
            total, first, second = tilted(before[0][i], before[1][i], label, row[i], others, spread)
            mean[i], sd[i] = first / total, np.sqrt(second / total - (first / total) ** 2)
        evidence.append(np.log(total))
    np.testing.assert_allclose(state.belief.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(state.belief.scale, sd, rtol=1e-8)
    np.testing.assert_allclose(info.log_z, evidence, rtol=1e-8)
