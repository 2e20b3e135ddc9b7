"""Compares the versions of Flink, of Beam's jars on its cluster and of the jobs' Beam, before a job
is sent: others fail late, in words about Java's classes.

A JobManager tells its version and its class path; Beam's jars are there where it was started from
the same image as the TaskManagers. A job server tells no version of its own, so job-server.sh
compares what it starts.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.engine.flink_jobs import ask_flink, find_flink_address, read_flink_overview
from beam_jobs.job.errors import TransientError, UserError

TRIED_BEAM = "2.62.0"
"""The version of Beam's jars that ran jobs of 2.77.0 (deploy/flink/README.md)."""
BEAM_JAR = re.compile(r"beam-runners-flink-(\d+\.\d+)(?:-job-server)?-(\d[\w.-]*)\.jar$")
"""Beam's jar for a version of Flink, alone or with all that it needs."""


def check_flink_of_job(options: PipelineOptions) -> None:
    """Raise UserError if the options of a job say where Flink is, and its versions do not fit."""
    scheme, _, address = find_flink_address(options).partition("://")
    if scheme == "http":
        with suppress(TransientError):  # it is away: the job server may reach it all the same
            check_flink_versions(address, "--flink_master")


def check_flink_versions(address: str, setting: str) -> None:
    """Raise UserError, in one line, if a JobManager at HOST:PORT has jars of Beam that are not for
    its Flink, or of a version that nobody has tried with the Beam of this process.
    """
    flink = str(read_flink_overview(address, setting).get("flink-version", ""))
    for jar, for_flink, version in find_beam_jars(address):
        if flink and not flink.startswith(f"{for_flink}."):
            raise UserError(
                f"{setting} {address}: {jar} is for Flink {for_flink}, and the cluster is Flink "
                f"{flink}; put Beam's jars for Flink {'.'.join(flink.split('.')[:2])} into its lib "
                "folder"
            )
        if version not in (TRIED_BEAM, beam.__version__):
            raise UserError(
                f"{setting} {address}: {jar} is of Beam {version}, and the jobs have Beam "
                f"{beam.__version__}; take the jars and the job server of {beam.__version__}, or "
                f"of {TRIED_BEAM}, which were tried with it"
            )


def find_beam_jars(address: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each of Beam's jars for Flink that a JobManager has, with the versions of
    Flink and of Beam in it; none where it does not say.
    """
    class_path: list[str] = []
    with suppress(OSError, HTTPException, ValueError, KeyError, TypeError):
        class_path = ask_flink(f"http://{address}", "jobmanager/environment")["classpath"]
    for path in class_path:
        if match := BEAM_JAR.search(path):
            yield match[0], match[1], match[2]
