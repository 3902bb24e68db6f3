"""Tests of adfpp.engine."""
