"""The calendar: what people plan ahead, and what follows from it."""
