"""Commands of `lcm lablets` that change lablets."""
