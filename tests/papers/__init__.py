"""Tests of adfpp.papers."""
