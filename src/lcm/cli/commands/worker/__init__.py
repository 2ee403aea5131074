"""Commands of `lcm workers` that change workers."""
