"""Learning curves, laws and bounds from order-parameter equations. They never see the learners held against them.

`perceptron` and `ising` are curves of a perceptron with Gaussian and with binary weights, `covariance` that of ADF with
its full covariance, `drift` of a teacher that turns, `dichotomies` of learning rates that fall. `asymptotics` has the
laws at many rows, `regression` the exact means of curve fitting; `channel` is what a labelled row tells, and
`parametric` reads a curve off where it is explicit.
"""
