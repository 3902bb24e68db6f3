"""Learning curves and bounds from order-parameter equations. They never see the learners that they are held against.

`ising` and `perceptron` are curves of a perceptron with binary and with Gaussian weights; `channel` is what a labelled
row tells, and `parametric` reads a curve off where it is explicit.
"""
