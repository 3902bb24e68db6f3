"""How often the verdicts of adfpp.check are right, on streams that are mixed, sorted, drifting or have outliers."""
