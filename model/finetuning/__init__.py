"""Fine-tune encoders on tasks."""

VERSION = 23
"""Version of the output; results of another version are made anew."""
