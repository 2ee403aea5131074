"""The whole platform on one seeded event loop: injected faults, checked invariants, replayable runs."""
