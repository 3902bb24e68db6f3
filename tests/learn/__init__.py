"""Tests of adfpp.learn."""
