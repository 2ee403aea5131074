"""Clouds that workers' instances run in: one interface, adapters for AWS and for a simulated EC2."""
