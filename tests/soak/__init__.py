"""Long runs that show whether anything grows without bound: `make soak`."""
