"""The wire contract, once: plain data and pure rules, shared by server, client, controllers, command line and pages."""
