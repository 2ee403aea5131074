"""Bookings of classes: records, requests, and the rules by which they take capacity. Pure."""
