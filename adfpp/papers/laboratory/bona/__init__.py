"""De Oliveira and Alamino, Performance of the Bayesian online algorithm for the perceptron (2007)."""
