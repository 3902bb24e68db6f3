"""Opper, A Bayesian approach to online learning (1998): both figures, laws, and the question that it leaves open."""
