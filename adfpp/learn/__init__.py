"""Learning from rows: ADF, EP, smoothing, and the posterior that they give."""
