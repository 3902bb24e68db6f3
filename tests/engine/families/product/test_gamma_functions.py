"""What is left of the digamma function without its leading terms, against mpmath."""

import jax
import numpy as np

from adfpp.engine.families.product.gamma_functions import log_gap
from tests.engine.families.product.members import mp


def test_what_is_left_of_digamma():
    """log a - ψ(a) and its slope, to a relative precision of the dtype from shape 1e-6 to 1e12."""
    a = np.concatenate([10.0 ** np.linspace(-6, 12, 60), [9.999, 10.0, 10.001]])
    g, slope = (np.asarray(each) for each in jax.jit(log_gap)(a))
    exact = [(mp.log(x) - mp.digamma(x), 1 - x * mp.psi(1, x)) for x in (mp.mpf(float(each)) for each in a)]
    np.testing.assert_allclose(g, [float(each) for each, _ in exact], rtol=2e-14)
    np.testing.assert_allclose(slope, [float(each) for _, each in exact], rtol=2e-14)
