"""Data model and pure rules, shared by the control plane, client, controllers, CLI and web pages.

This package defines the API contract once. It imports only the standard library and pydantic.
"""
