"""Commands for what people plan ahead."""
