"""Model folders: what model.export writes, and the one loader that `score`, MLflow's server and the
check of an export share.

MLflow copies this package beside the folder, so it imports nothing else of the project, and its
errors are ValueErrors unless the caller says otherwise.
"""
