"""Chooses the engine of a job, and the Beam options that the job does not set itself.

Locally the engine is FnApiRunner: DirectRunner first tries to download a Prism binary, without a
time limit, and then ignores the running mode (apache_beam/runners/direct/direct_runner.py).
"""

import argparse
import atexit
import logging
import os
import shutil
import tempfile
from pathlib import Path

from apache_beam.options.pipeline_options import (
    DirectOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    SetupOptions,
    StandardOptions,
    TestOptions,
)

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.engine import flink, staged_package

LOCAL_RUNNERS = {None, "DirectRunner", "FnApiRunner"}  # values of --runner that mean FnApiRunner
# whose job servers know options that Beam here does not
JOB_SERVER_RUNNERS = {"PortableRunner", "FlinkRunner", "SparkRunner"}
PACKAGE_OPTIONS = "setup_file", "extra_package", "sdk_container_image"  # what workers install
SMALL_BYTES = 50_000_000  # up to this a second worker takes longer to start than it saves
JOB_SECONDS = 365 * 24 * 3600  # --job_server_timeout: some job servers end the job with it


def resolve_beam_options(flags: list[str], input_bytes: int) -> PipelineOptions:
    """Return Beam's options for a job that reads about `input_bytes`; check the options."""
    # Beam logs what it raises too, and warns about clients of clouds that nobody asked for
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    logging.getLogger("root").setLevel(logging.ERROR)
    if not any("save_main_session" in flag for flag in flags):
        flags = [*flags, "--no_save_main_session"]
    options = PipelineOptions(flags)
    if options.view_as(StandardOptions).runner in LOCAL_RUNNERS:
        options.view_as(StandardOptions).runner = "FnApiRunner"
        choose_local_mode(options, flags, input_bytes)
    if has_job_server(options):
        portable = options.view_as(PortableOptions)
        if not is_given(flags, "job_server_timeout"):
            portable.job_server_timeout = JOB_SECONDS
        if portable.job_endpoint and portable.job_endpoint != "embed":
            flink.check_job_server(portable.job_endpoint, "job_endpoint")
    else:
        check_option_names(flags)
    if is_dataflow(options) and not any(is_given(flags, name) for name in PACKAGE_OPTIONS):
        folder = Path(tempfile.mkdtemp(prefix="beam-jobs-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        options.view_as(SetupOptions).setup_file = str(staged_package.write_package(folder))
    setup = options.view_as(SetupOptions)
    setup.pickle_library = setup.pickle_library or "cloudpickle"
    return options


def is_local(options: PipelineOptions) -> bool:
    return options.view_as(StandardOptions).runner == "FnApiRunner"


def has_one_process(options: PipelineOptions) -> bool:
    mode = options.view_as(DirectOptions).direct_running_mode
    return is_local(options) and mode != "multi_processing"


def is_dataflow(options: PipelineOptions) -> bool:
    return options.view_as(StandardOptions).runner == "DataflowRunner"


def has_job_server(options: PipelineOptions) -> bool:
    return options.view_as(StandardOptions).runner in JOB_SERVER_RUNNERS


def is_staged_only(options: PipelineOptions) -> bool:
    """Return whether the graph is only checked, or stored as a template, and not run."""
    template = options.view_as(GoogleCloudOptions).template_location
    return bool(options.view_as(TestOptions).dry_run or template)


def choose_local_mode(options: PipelineOptions, flags: list[str], input_bytes: int) -> None:
    direct, is_chosen = options.view_as(DirectOptions), is_given(flags, "direct_num_workers")
    if not is_chosen or direct.direct_num_workers == 0:
        has_affinity = hasattr(os, "sched_getaffinity")
        direct.direct_num_workers = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count()
    if not is_given(flags, "direct_running_mode"):
        many = direct.direct_num_workers > 1 and (is_chosen or input_bytes > SMALL_BYTES)
        direct.direct_running_mode = "multi_processing" if many else "in_memory"
    if direct.direct_running_mode == "in_memory":
        direct.direct_num_workers = 1


def is_given(flags: list[str], name: str) -> bool:
    """Return whether an option is among the flags; Beam takes some with hyphens too."""
    return any(f.split("=", 1)[0].replace("-", "_") == f"__{name}" for f in flags)


def check_option_names(flags: list[str]) -> None:
    """Refuse options that Beam does not know: it would drop them, and a slip go unnoticed."""
    unknown: list[str] = []

    def parse(parser: argparse.ArgumentParser) -> None:
        unknown.extend(parser.parse_known_args(flags)[1])

    PipelineOptions(flags).get_all_options(add_extra_args_fn=parse)
    if unknown:
        name = unknown[0].partition("=")[0]
        raise UserError(f"unknown option {name}: neither of this job (--help) nor of Apache Beam")
