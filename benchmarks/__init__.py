"""Measures the package: its accuracy against references, and its speed against the same work by other means."""
