"""Families by name."""

import pytest

from adfpp.engine.families import family_named


def test_unknown_family_is_named() -> None:
    """A misspelt family is refused with the choices."""
    with pytest.raises(ValueError, match="diagonal.*full.*spherical"):
        family_named("fulll")
