"""Pre-train encoders on shards."""

VERSION = 15
"""Raise it when the numbers of a step change: no checkpoint of another one is continued."""
