"""The walls of the house: who may import whom."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
GROUND_FLOOR = "beam_jobs.core"
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
        "flows/servers/mlflow_application.py",
    },
    "torch_xla": {"model/device.py"},
}

SOURCES = sorted(
    p for package in ("flows", "beam_jobs", "model") for p in (ROOT / package).rglob("*.py")
)


def imported_modules(path: Path) -> set[str]:
    """Return the dotted names of everything a file imports, at any depth of the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def broken_walls(path: Path) -> list[str]:
    name = str(path.relative_to(ROOT))
    package = path.relative_to(ROOT).parts[0]
    is_ground_floor = name.startswith(GROUND_FLOOR.replace(".", "/"))
    broken = []
    for module in imported_modules(path):
        top = module.split(".")[0]
        is_allowed = package == "model" and module.startswith(f"{GROUND_FLOOR}.")
        if top in MAY_NOT_IMPORT.get(package, set()) and not is_allowed:
            broken.append(f"{name} imports {module}")
        is_upstairs = module.startswith("beam_jobs.") and not module.startswith(f"{GROUND_FLOOR}.")
        if is_ground_floor and (top == "apache_beam" or is_upstairs):
            broken.append(f"{name}, on the ground floor, imports {module}")
        if name not in ONLY_IN.get(top, {name}):
            broken.append(f"{name} imports {top}, which only {ONLY_IN[top]} may")
    return broken


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
    modules = sorted((ROOT / GROUND_FLOOR.replace(".", "/")).glob("[a-z]*.py"))
    assert modules
    names = [f"{GROUND_FLOOR}.{path.stem}" for path in modules]
    assert not {"apache_beam", "torch", "prefect", "mlflow", "transformers"} & list_loaded(names)


def test_the_commands_start_without_a_large_library():
    large = {"apache_beam", "torch", "prefect", "mlflow", "transformers"}
    assert not large & list_loaded(["flows.cli.run_commands"]), "each adds seconds to --help"
