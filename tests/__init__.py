"""Tests, in one package for each package of adfpp."""
