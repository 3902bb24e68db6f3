"""Tests of adfpp.engine.families."""
