"""Cisco Modeling Labs (CML) servers: a system client, a labs client, and a simulator of both.

The labs client (`lcm.cml.client.labs`) is reserved for the lablet controller, so this package does not export it.
"""
