"""Tests of adfpp.engine.families.product."""
