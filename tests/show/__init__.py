"""Tests of adfpp.show."""
