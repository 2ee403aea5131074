"""LCM beside others that do the same work, in one run; `make bench-peers`."""
