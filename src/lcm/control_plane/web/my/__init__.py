"""The pages of people who use labs: theirs, or the one that a seat link opens."""
