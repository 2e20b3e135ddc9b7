"""Fine-tune encoders on tasks."""

VERSION = 24
"""Version of the output; results of another version are made anew."""
