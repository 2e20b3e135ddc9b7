"""Measures what a process has held at most; ru_maxrss counts what its parent had held too."""

import re
from pathlib import Path


def peak_bytes() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, "Linux says how much memory a process has held at most"
    return 1024 * int(found[1])
