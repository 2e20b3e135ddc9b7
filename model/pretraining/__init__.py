"""Pre-train encoders on shards."""

VERSION = 15
"""Version of the output: raise it when the numbers of a training step change. No checkpoint of
another version is continued. tests/model/pretraining/test_checkpoint.py notices a change.
"""
