"""The whole platform on one seeded event loop: faults strike, invariants are checked, every run can be replayed."""
