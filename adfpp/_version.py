"""The version, which pyproject.toml reads as well."""

__version__ = "0.1.0"
