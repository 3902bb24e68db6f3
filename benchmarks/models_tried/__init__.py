"""Runs adfpp on published models that were written without adfpp in mind: ``python -m benchmarks.models_tried``."""
