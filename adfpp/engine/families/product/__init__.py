"""Products of exponential families and Gaussian blocks: the belief, and the projection of a factor onto its parts."""
