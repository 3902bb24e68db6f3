"""Tests of adfpp.learn.ep."""
