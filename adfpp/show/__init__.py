"""What a user sees: ArviZ data, plots, the report."""
