"""Benchmarks. Each prints one line per result; `make bench` runs all, `python -m benchmarks NAME` runs one."""
