"""Tests, named for behaviour."""
