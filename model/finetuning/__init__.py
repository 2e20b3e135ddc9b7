"""Fine-tune encoders on tasks."""

VERSION = 12
"""The version of what a fine-tuning computes: results of another version are made anew."""
