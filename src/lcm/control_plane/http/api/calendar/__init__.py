"""Routes for what people plan ahead."""
