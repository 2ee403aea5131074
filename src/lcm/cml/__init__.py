"""Cisco Modeling Labs servers: a client of the system, a client of the labs, and a simulator of both.

The labs client (`lcm.cml.client.labs`) is for the lablet controller alone, so it is not named here.
"""
