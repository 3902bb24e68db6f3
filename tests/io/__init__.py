"""Tests of adfpp.io."""
