"""The names of tests must be the same in every worker that collects them."""


def pytest_make_parametrize_id(config, val, argname):
    """Bytes by their number: packed ones hold the second in which they were packed."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None
