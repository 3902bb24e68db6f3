"""Tests of adfpp.model.local."""
