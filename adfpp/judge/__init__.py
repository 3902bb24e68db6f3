"""Measures how far a posterior is off: against a reference such as NUTS, or without one."""

import numpyro as _numpyro  # noqa: F401 (as a whole, before its modules: see adfpp._public)
