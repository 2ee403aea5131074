"""Times in a zone, weekly windows, and who decides what a worker is to be."""
