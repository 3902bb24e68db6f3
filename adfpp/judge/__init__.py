"""How far an answer is off: against NUTS, or from the learner's own evidence."""

import numpyro as _numpyro  # noqa: F401 (as a whole, before its modules: see adfpp._public)
