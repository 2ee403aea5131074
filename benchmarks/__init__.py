"""Measurements. Each prints one line a figure; `make bench` runs all, `python -m benchmarks NAME` runs one."""
