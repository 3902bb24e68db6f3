"""Tests of adfpp.model."""
