"""The web pages, rendered on the server and kept up to date by the event stream."""
