"""Fine-tune encoders on tasks."""

VERSION = 22
"""Version of the output; results of another version are made anew."""
