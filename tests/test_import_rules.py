"""The walls of the house: who may import whom."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
GROUND_FLOOR = ("beam_jobs.core", "beam_jobs.labels", "beam_jobs.model_folder")
MAY_NOT_IMPORT = {
    "beam_jobs": {"torch", "transformers", "prefect", "mlflow", "model", "flows"},
    "model": {"prefect", "apache_beam", "flows", "beam_jobs"},
}
ONLY_IN = {
    "mlflow": {
        "model/tracking/mlflow_client.py",
        "model/tracking/mlflow_run.py",
        "model/tracking/registry.py",
        "model/tracking/served_model.py",
        "model/tracking/serving.py",
    },
    "torch_xla": {"model/device.py"},
}

SOURCES = sorted(
    p for package in ("flows", "beam_jobs", "model") for p in (ROOT / package).rglob("*.py")
)


def imported_modules(path: Path) -> set[str]:
    """Return the dotted names of everything a file imports, at any depth of the file, also for its
    annotations.
    """
    names, tree = set(), ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("amazon_electra.") for name in names}


def broken_walls(path: Path) -> list[str]:
    name = str(path.relative_to(ROOT))
    package = path.relative_to(ROOT).parts[0]
    is_ground_floor = name.startswith(tuple(floor.replace(".", "/") for floor in GROUND_FLOOR))
    broken = []
    for module in imported_modules(path):
        top = module.split(".")[0]
        is_allowed = package == "model" and module.startswith(GROUND_FLOOR)
        if top in MAY_NOT_IMPORT.get(package, set()) and not is_allowed:
            broken.append(f"{name} imports {module}")
        is_upstairs = module.startswith("beam_jobs.") and not module.startswith(GROUND_FLOOR)
        if is_ground_floor and (top == "apache_beam" or is_upstairs):
            broken.append(f"{name}, on the ground floor, imports {module}")
        if name not in ONLY_IN.get(top, {name}):
            broken.append(f"{name} imports {top}, which only {ONLY_IN[top]} may")
    return broken


def list_modules() -> dict[str, Path]:
    """Return the files of our modules by name, such as flows.stages.corpus."""
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in SOURCES}


def list_arrows(name_home: Callable[[str], str]) -> dict[str, set[str]]:
    """Return which home of our modules imports from which others."""
    modules = list_modules()
    arrows: dict[str, set[str]] = defaultdict(set)
    for name, path in modules.items():
        for imported in imported_modules(path):
            target = imported if imported in modules else imported.rpartition(".")[0]
            if target in modules and name_home(target) != name_home(name):
                arrows[name_home(name)].add(name_home(target))
    return arrows


def test_no_modules_import_each_other():
    TopologicalSorter(list_arrows(lambda name: name)).prepare()  # CycleError names a circle


def test_folders_of_flows_import_those_above_them_in_the_page():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    order = re.findall(r"^\| `(\w+)(?:/|/\*\.py|\.py)` \|", page, re.MULTILINE)

    def name_folder(module: str) -> str:
        package, folder, *rest = module.split(".")
        return folder if package == "flows" and (rest or folder in order) else package

    arrows = list_arrows(name_folder)
    assert {*order} == {name_folder(name) for name in list_modules() if name.startswith("flows.")}
    for place, folder in enumerate(order):
        assert arrows[folder] <= {"beam_jobs", "model", *order[:place]}, folder


def list_loaded(modules: list[str]) -> set[str]:
    """Return the top-level packages that a process has loaded once it has imported modules."""
    program = f"import importlib, sys\nfor name in {modules}: importlib.import_module(name)\n"
    program += "print(sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return set(ast.literal_eval(done.stdout))


def test_every_file_keeps_the_walls():
    assert [broken for path in SOURCES for broken in broken_walls(path)] == []


def test_a_broken_wall_is_noticed():
    """The rules see what they forbid: a module of flows has imports that model may not have."""
    modules = imported_modules(ROOT / "flows" / "domain_adaptation.py")
    assert any(m.startswith("flows.") for m in modules)
    assert any(m.startswith("prefect") for m in modules)


def test_the_ground_floor_loads_no_large_library():
    names = [
        f"amazon_electra.{floor}.{path.stem}"
        for floor in GROUND_FLOOR
        for path in (ROOT / floor.replace(".", "/")).glob("[a-z]*.py")
    ]
    assert names
    assert not {"apache_beam", "torch", "prefect", "mlflow", "transformers"} & list_loaded(names)


def test_the_commands_start_without_a_large_library():
    large = {"apache_beam", "torch", "prefect", "mlflow", "transformers", "scipy", "sklearn"}
    assert not large & list_loaded(["amazon_electra.flows.cli.run_commands"]), (
        "each adds seconds to --help"
    )


def test_the_jobs_start_without_nltk():
    """It takes as long as Beam, and only what trains or asks Punkt needs it."""
    names = [f"amazon_electra.beam_jobs.{job}_job" for job in ("corpus", "shards", "scoring")]
    assert not {"nltk", "scipy", "sklearn", "datasketch"} & list_loaded(names)
