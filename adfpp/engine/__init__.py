"""The numerical engine: arrays in, arrays out. It imports JAX and NumPy only, and knows neither NumPyro nor files."""
