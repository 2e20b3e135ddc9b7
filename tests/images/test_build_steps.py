"""The build steps of every image, followed in a bare Debian, and then what the image is for, done
by its user. What comes from another image and from no package is named where it is missing.

Takes minutes and gigabytes, so it runs only when asked for by name: `pytest tests/images`. Needs
root, debootstrap, and the packages' indexes.
"""

import gzip
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
import yaml

from beam_jobs.sample.sample_dump import generate_lines
from tests.beam_jobs.test_shards_job import vocabulary  # noqa: F401
from tests.images.chroot import copy_chroot, install_packages, make_debian
from tests.images.replay import ROOT, SHELL, build_image

pytestmark = [
    pytest.mark.skipif(
        "tests/images" not in " ".join(sys.argv), reason="takes minutes: name tests/images"
    ),
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("debootstrap"), reason="needs root and debootstrap"
    ),
    pytest.mark.timeout(2400),
]
RUN = "run --dump sample:600 --preset tiny --set pretraining.steps=10 --set finetuning.seeds=0"
FLINK_LIBRARIES = ROOT / "build/flink/lib"


@pytest.fixture
def folder(tmp_path):
    """A folder that does not outlive the test: an image has gigabytes."""
    yield tmp_path
    remove_folder(tmp_path)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Debian with Python 3.11 and its pip on the path, as python:3.11-slim has them."""
    folder = tmp_path_factory.mktemp("debian")
    made = make_debian(folder / "root", ["ca-certificates", "python3", "python3-venv"])
    done = made.run(["python3", "-m", "venv", "/usr/local"])
    assert done.returncode == 0, done.stdout
    yield made
    remove_folder(folder)


def remove_folder(folder):
    """Remove the hundred thousand files of an image."""
    subprocess.run(["rm", "-rf", folder], check=True)


def list_programs(image_name):
    """Return the first word of what each service of the Compose files starts in an image."""
    files = [ROOT / "deploy/compose.yaml", ROOT / "deploy/flink/compose.yaml"]
    services = [s for path in files for s in yaml.safe_load(path.read_text())["services"].values()]
    return {s["entrypoint"][0] for s in services if s["image"] == image_name and "entrypoint" in s}


def test_the_image_of_servers_and_workers_makes_a_run(python, folder):
    image = build_image("Dockerfile", copy_chroot(python, folder / "root"))
    assert image.copied_from_stages == []
    for program in list_programs("amazon-electra"):
        done = image.start(f"command -v {program}", entrypoint=SHELL)
        assert done.returncode == 0, f"no {program} in the image"
    done = image.start("touch flows/mine.py", entrypoint=SHELL)
    assert "Permission denied" in done.stdout, "its code is root's"
    done = image.start(*RUN.split(), "--set", "finetuning.tasks=polarity")
    assert done.returncode == 0, done.stdout[-3000:]
    made = {path.parents[1].name for path in (folder / "root/data/store").glob("*/*/manifest.json")}
    assert made >= {"corpus", "vocabulary", "shards", "pretraining", "finetuning", "report"}


def test_the_image_of_dataflow_has_what_both_jobs_need(python, folder, vocabulary):  # noqa: F811
    image = build_image("dataflow/Dockerfile", copy_chroot(python, folder / "root"))
    assert image.copied_from_stages == ["/opt/google/dataflow/python_template_launcher"]
    assert image.entrypoint == ["/opt/apache/beam/boot"], "a file of Beam's image"
    inside = folder / "root/tmp"
    with gzip.open(inside / "dump.json.gz", "wt") as dump:
        dump.writelines(generate_lines(300, seed=0))
    shutil.copytree(vocabulary, inside / "vocabulary")
    launch = [image.environment["FLEX_TEMPLATE_PYTHON_PY_FILE"]]
    corpus = ["--input", "/tmp/dump.json.gz", "--output", "/tmp/corpus"]
    shards = ["--corpus", "/tmp/corpus", "--vocabulary", "/tmp/vocabulary", "--output", "/tmp/rows"]
    for job, arguments in (("corpus_job", corpus), ("shards_job", shards)):
        done = image.start(*launch, *arguments, entrypoint=["python"], JOB=job)
        assert done.returncode == 0, done.stdout[-3000:]
    assert (inside / "corpus/corpus.json").exists()
    assert (inside / "rows/shards.json").exists()


def test_the_scoring_image_can_load_a_classifier(python, folder):
    dockerfile = "dataflow/Dockerfile.scoring"
    [index] = re.findall(r"--extra-index-url (\S+)", (ROOT / "deploy" / dockerfile).read_text())
    try:
        urllib.request.urlopen(index, timeout=10)
    except (urllib.error.URLError, OSError):
        pytest.skip("the index of torch's builds for CPUs cannot be reached")
    image = build_image(dockerfile, copy_chroot(python, folder / "root"))
    done = image.start("import beam_jobs.scoring_job, torch", entrypoint=["python", "-c"])
    assert done.returncode == 0, done.stdout


def test_the_flink_image_starts_beams_job_server(python, folder):
    if not FLINK_LIBRARIES.exists():
        pytest.skip("needs the jars: make build/flink/lib build/flink/beam")
    base = copy_chroot(python, folder / "root")
    install_packages(base, "openjdk-17-jre-headless")
    shutil.copytree(FLINK_LIBRARIES, base.find_path("/opt/flink/lib"))
    image = build_image("flink/Dockerfile", base)
    [program] = list_programs("amazon-electra-flink")
    done = image.start(entrypoint=[program])
    assert "error: give the REST address of the JobManager" in done.stdout
    words = ["127.0.0.1:1", "--job-port", "0", "--artifact-port", "0"]
    done = image.start(*words, entrypoint=["timeout", "20", program])
    assert "JobService started on" in done.stdout, done.stdout[-3000:]
    assert list(base.find_path("/opt/flink/lib/beam").glob("beam-runners-flink-*.jar"))
