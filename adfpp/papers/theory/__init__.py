"""Learning curves, laws and bounds from order-parameter equations, computed without the learners.

`perceptron` and `ising` have curves of a perceptron with Gaussian and with binary weights, `bona` those of the Bayesian
online algorithm, `covariance` that of ADF with a full covariance, `drift` those of a drifting teacher, and
`dichotomies` those of rules with a learning rate. `asymptotics` has laws at many rows and `regression` the exact means
of curve fitting. `channel` has the information in a labelled row, `equations` solves differential equations in α, and
`parametric` computes curves that are explicit in the signal.
"""
