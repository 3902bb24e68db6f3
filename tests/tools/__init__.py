"""Scripts that test the tests."""
