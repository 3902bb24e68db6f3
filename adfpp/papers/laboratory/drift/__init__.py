"""A teacher whose weights drift, and online learners that follow it.

De Oliveira and Alamino (2007) name this case as a purpose of the Bayesian online algorithm for the perceptron.
"""
