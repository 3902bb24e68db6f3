"""Tests of adfpp.cli."""
