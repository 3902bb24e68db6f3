"""Tests of adfpp.learn.vmp."""
