"""Bookings: admitted in one commit, changed, and read."""
