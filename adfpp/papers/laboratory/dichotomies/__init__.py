"""Barkai, Seung and Sompolinsky, On-line learning of dichotomies (1995): rules with a learning rate, and ADF."""
