"""Tests of the reading of jaxprs."""
