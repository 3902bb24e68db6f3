"""Tests of adfpp.judge."""
