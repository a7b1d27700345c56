"""The platform: start and end, doors, probes."""
