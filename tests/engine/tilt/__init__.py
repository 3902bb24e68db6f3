"""Tests of tilted moments."""
