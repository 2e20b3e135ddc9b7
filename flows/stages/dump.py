"""The dump: which files, known by their names, sizes and content."""

import glob
from pathlib import Path

from beam_jobs.command import UserMistake
from flows.parameters import Parameters
from flows.store import Stage, Store


def stage(parameters: Parameters, store: Store) -> Stage:
    """Nothing is copied: a dump's fingerprint is that of its files, wherever they lie."""
    paths = [path for given in parameters.dump.paths for path in files(given, store)]
    if twice := {p for p in paths if paths.count(p) > 1}:
        raise UserMistake(f"dump.paths: {min(twice)} is named more than once")
    listing = [{"name": p.name, "size": p.stat().st_size, "sha256": store.digest(p)} for p in paths]
    result = {
        "files": len(paths),
        "bytes": sum(p.stat().st_size for p in paths),
        "paths": [str(path) for path in paths],
        "name": name(parameters.dump.paths),
    }
    return Stage("dump", 1, {"files": listing}, result=result)


def files(given: str, store: Store) -> list[Path]:
    """What one entry of dump.paths stands for, in order of name."""
    if given.startswith("sample:"):
        return [sample(int(given.removeprefix("sample:")), store)]
    found = sorted(Path(path).resolve() for path in glob.glob(str(Path(given).expanduser()), recursive=True))
    if not found:
        raise UserMistake(f"dump.paths: no file {given}")
    for path in found:
        if not path.is_file():
            raise UserMistake(f"dump.paths: {path} is a folder; name its files, for example {path}/*.json.gz")
        if path.stat().st_size == 0:
            raise UserMistake(f"dump.paths: {path} is empty")
    return found


def sample(reviews: int, store: Store) -> Path:
    """The synthetic dump, written once."""
    path = store.root / "samples" / f"sample-{reviews}.json.gz"
    if not path.exists():
        from beam_jobs.sample_dump import write_sample

        path.parent.mkdir(parents=True, exist_ok=True)
        write_sample(path, reviews, 0)
    return path


def name(paths: list[str]) -> str:
    """Short enough for the name of a run: the first file's, and how many more there are."""
    first = Path(paths[0]).name.split(".")[0].replace("sample:", "sample-").replace("*", "") or "dump"
    return first if len(paths) == 1 else f"{first}+{len(paths) - 1}"
