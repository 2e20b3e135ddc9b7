"""A job's local command loads Beam without the clients of clouds; nothing else is deprived."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from beam_jobs.engine.light_imports import hide_modules, skip_package_init
from beam_jobs.engine.local_command import GARBAGE_THRESHOLDS, NOT_NEEDED, is_local_command

ROOT = Path(__file__).parents[3]
JOB = str(ROOT / "beam_jobs" / "corpus_job.py")


@pytest.mark.parametrize(
    ("words", "is_local"),
    [
        ([], True),
        (["--runner", "DirectRunner"], True),
        (["--runner=FnApiRunner"], True),
        (["--runner", "DataflowRunner"], False),
        (["--runner=FlinkRunner"], False),
        (["--runner=FnApiRunner", "--runner", "DataflowRunner"], False),
        (["--runner"], True),  # argparse refuses it later
    ],
)
def test_a_command_is_local_unless_it_names_a_remote_runner(words, is_local):
    assert is_local_command([JOB, *words]) is is_local


@pytest.mark.parametrize(
    "program", ["", "-c", "-m", "/usr/bin/pytest", str(ROOT / "corpus_job.py")]
)
def test_no_other_program_is_a_local_command(program):
    assert not is_local_command([program])


def loaded_modules(*words: str) -> set[str]:
    """Return what a job's process has loaded once its imports are done and it makes arrays."""
    program = (
        f"import sys, json; sys.argv = {[JOB, *words]!r}\n"
        "import beam_jobs.corpus_job, beam_jobs.shards_job, pyarrow\n"
        "pyarrow.array(['text'])\n"
        "print(json.dumps(list(sys.modules)))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr == "" or words
    return set(json.loads(done.stdout))


def test_a_local_command_loads_no_client_of_a_cloud_and_keeps_nothing_hidden():
    namespaces = {"google.cloud"}  # are there from the start
    assert loaded_modules() & set(NOT_NEEDED) - namespaces == set()


def test_a_remote_command_has_all_of_beam():
    pytest.importorskip("google.auth", reason="needs apache-beam[gcp]")
    assert "google.auth" in loaded_modules("--runner=DataflowRunner")


def test_hidden_modules_can_be_imported_afterwards(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with hide_modules("colorsys"), pytest.raises(ImportError):
        import colorsys
    import colorsys

    assert colorsys.rgb_to_hsv(0, 0, 0) == (0, 0, 0)


def test_a_package_is_skipped_only_where_it_was_not_imported_before(tmp_path, monkeypatch):
    inner = tmp_path / "outer_package" / "inner"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").write_text("raise RuntimeError('was run')")
    (inner / "__init__.py").write_text("raise RuntimeError('was run')")
    (inner / "leaf.py").write_text("VALUE = 5")
    monkeypatch.syspath_prepend(str(tmp_path))
    with skip_package_init("outer_package", "outer_package.inner"):
        from outer_package.inner.leaf import VALUE
    assert VALUE == 5
    assert not [name for name in sys.modules if name.startswith("outer_package")]
    with pytest.raises(RuntimeError, match="was run"):
        import outer_package  # noqa: F401
    before = dict(sys.modules)
    with skip_package_init("os", "os.path"):
        assert sys.modules["os"] is os
    assert sys.modules == before


def test_two_workers_are_forked_from_the_command_and_give_the_same_bytes(tmp_path):
    """Without a fork, a worker would be a Python of its own that runs Beam's sdk_worker_main."""
    dump = tmp_path / "dump.jsonl"
    lines = [json.dumps({"text": f"It is number {i}. I like it.", "rating": 5}) for i in range(300)]
    dump.write_text("\n".join(lines))
    digests = []
    for workers in ("1", "2"):
        output = tmp_path / workers
        command = [sys.executable, "-m", "beam_jobs.corpus_job", "--input", str(dump)]
        command += ["--output", str(output), "--direct_num_workers", workers]
        seen = f"{tmp_path}/{workers}.executed"
        trace = "import sys, os\nsys.addaudithook(lambda e, a: e == 'subprocess.Popen' and "
        trace += f"open({seen!r}, 'a').write(str(a)))\n"
        (tmp_path / "sitecustomize.py").write_text(trace)
        environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        assert f"{workers} worker(s)" in done.stderr
        assert not Path(seen).exists() or "sdk_worker_main" not in Path(seen).read_text()
        digests.append([path.read_bytes() for path in sorted(output.glob("*.parquet"))])
    assert digests[0] == digests[1]
    assert digests[0]


def test_only_a_local_command_searches_for_garbage_seldom():
    program = (
        "import sys, gc, json; sys.argv = [{!r}]\n"
        "from beam_jobs.engine import local_command\n"
        "during_imports = gc.isenabled()\n"
        "local_command.tune_memory()\n"
        "print(json.dumps([during_imports, gc.isenabled(), *gc.get_threshold()]))"
    )
    found = [
        json.loads(subprocess.check_output([sys.executable, "-c", program.format(name)], cwd=ROOT))
        for name in (JOB, "-c")
    ]
    assert found == [[False, True, *GARBAGE_THRESHOLDS], [True, True, *gc.get_threshold()]]
