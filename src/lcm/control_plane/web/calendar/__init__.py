"""Pages of what people plan ahead."""
