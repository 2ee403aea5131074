"""What controllers share: who may ask them, whose word counts, and how they write."""
