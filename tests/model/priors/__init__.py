"""Tests of adfpp.model.priors."""
