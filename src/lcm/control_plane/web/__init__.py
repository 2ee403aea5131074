"""Pages for people, rendered here and kept up to date by the event stream."""
