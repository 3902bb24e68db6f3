"""Output for the user: data for ArviZ, plots, and the report."""
