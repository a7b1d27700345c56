"""The HTTP API under /api/v1/. Each module parses and authorises, then calls one function that holds the logic."""
