"""Measuring and shaking Palimpsest: a fast provider of our own, the load, the figures (`make bench`), the chaos."""
