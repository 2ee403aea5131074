"""Builds processes from settings: the only package that chooses adapters and assembles components."""
