"""Measurements of the package: accuracy against references, speed against peers."""
