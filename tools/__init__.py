"""Checks and reports about the code itself."""
