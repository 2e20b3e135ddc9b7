"""A study: arms × tasks × seeds × settings from a study file. Its encoders and cells are kept beside all other
studies' in the store, so that studies share what they have in common and a changed one repeats what changed.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path

from beam_jobs.command import UserMistake
from flows import servers
from flows.deployments import ACCELERATOR
from flows.parameters import Parameters, StudyChoice
from flows.stages import dump, pretraining, shards
from flows.stages.report import changes, described_stages
from flows.store import Stage, Store
from model.command import UserMistake as ModelMistake
from model.evaluation import study_file, study_reading
from model.json_file import write_json

STEPS = 2_000
"""Of pre-training where the study's encoders ask for ${steps} and nobody says."""
MADE = ("corpus", "shards", "general_shards", "encoder")
"""Variables that stages of the graph fill; `general_shards` needs general text."""
SHARED = "studies"
"""Folder of the store with every study's encoders and cells."""


def wanted(choice: StudyChoice) -> set[str]:
    """The variables of the file that stages have to fill."""
    return {name for name in study_reading.variables_in(text(choice)) if name in MADE} - choice.variables.keys()


def text(choice: StudyChoice) -> str:
    """The study as YAML: of the form, where that says something, else of the file."""
    if choice.is_own:
        return study_reading.to_text(choice.own)
    try:
        return study_reading.found(choice.file).read_text(encoding="utf-8")
    except ModelMistake as mistake:
        raise UserMistake(f"study.file: {mistake}") from None


def called(choice: StudyChoice) -> str:
    """What messages call it."""
    return "study.own" if choice.is_own else choice.file


def read(parameters: Parameters, choice: StudyChoice) -> study_file.Study:
    """With marks where the folders of stages will be: what is wrong with it is told before anything is made."""
    marks = {name: f"<{name}>" for name in MADE}
    variables = _variables(parameters, choice, marks)
    try:
        study = study_reading.from_text(text(choice), called(choice), variables, choice.settings, option="--set")
        study_reading.check_places(study, called(choice))
        return study
    except ModelMistake as mistake:
        raise UserMistake(str(mistake)) from None


def evaluation_files(parameters: Parameters, choice: StudyChoice) -> list[str]:
    """Of the tasks that do not come from the corpus: their texts are withheld from pre-training."""
    study = read(parameters, choice)
    found = [path for task in study.tasks for path in _files(Path(task.data).expanduser())]
    return sorted({str(path.resolve()) for path in found})


def general_shards(parameters: Parameters, choice: StudyChoice, made: Mapping[str, Stage], store: Store) -> Stage:
    """Of the general text the choice names; the tasks' texts are withheld from it as from the corpus."""
    if not choice.general_text:
        raise UserMistake(f"{called(choice)} pre-trains on general text too: give --general FILES")
    texts = [path for given in choice.general_text for path in dump.files(given, store)]
    withheld = [path for given in parameters.corpus.withhold for path in dump.files(given, store)]
    return shards.general(parameters, texts, withheld, made["corpus"], made["vocabulary"], store)


def stage(parameters: Parameters, choice: StudyChoice, sources: Mapping[str, Stage], store: Store) -> Stage:
    """`sources`: the stages that fill the variables of these names, and others that the report shows."""
    filling = {name: made for name, made in sources.items() if name in MADE}
    study = read(parameters, choice)
    outside = [path for place in study_file.places(study) for path in _files(Path(place).expanduser())]

    def arguments(store: Store, folder: Path) -> list[str]:
        folders = {name: str(store.folder(made)) for name, made in filling.items()}
        if "encoder" in folders:
            folders["encoder"] += f"/{pretraining.exported(parameters)}"
        variables = _variables(parameters, choice, folders)
        about, written = folder / "about.json", folder / "study.yaml"
        written.write_text(text(choice), encoding="utf-8")
        write_json(
            about, {"command": command(parameters, choice, written), **described_stages(store, list(sources.values()))}
        )
        return [
            str(written),
            *["--output", str(folder), "--keep", str(store.root / SHARED), "--about", str(about)],
            *["--at_once", str(choice.at_once), "--device", parameters.pretraining.device],
            *(word for name, value in variables.items() for word in ("--var", f"{name}={value}")),
            *(word for name, value in choice.settings.items() for word in ("--set", f"{name}={value}")),
        ]

    return Stage(
        "study",
        5,
        {
            "text": text(choice),
            "variables": _variables(parameters, choice, {}),
            "settings": choice.settings,
            "contents": {str(path): store.digest(path) for path in outside},
        },
        filling,
        "model.study",
        arguments,
        title=f"study {choice.own.title if choice.is_own else Path(choice.file).stem}",
        environment={"MLFLOW_TRACKING_URI": servers.mlflow_uri(store.root)},
        tags=(ACCELERATOR,),
    )


def command(parameters: Parameters, choice: StudyChoice, written: Path) -> str:
    """What makes it again, as a shell reads it; `written` is the file with a study that was filled into the form."""
    words = ["amazon-electra", "study", str(written) if choice.is_own else choice.file]
    words += ["--preset", parameters.preset, "--store", parameters.store]
    words += ["--dump", *parameters.dump.paths] if wanted(choice) else []
    words += ["--general", *choice.general_text] if choice.general_text else []
    words += ["--at-once", str(choice.at_once)] if choice.at_once != StudyChoice().at_once else []
    own = [f"{name}={value}" for name, value in {**choice.variables, **choice.settings}.items()]
    return shlex.join([*words, *changes(parameters), *(word for text in own for word in ("--set", text))])


def _variables(parameters: Parameters, choice: StudyChoice, folders: Mapping[str, str]) -> dict[str, str]:
    asked = study_reading.variables_in(text(choice))
    known = {"steps": str(parameters.pretraining.steps or STEPS), **folders, **choice.variables}
    for name in choice.variables:
        if name not in asked:
            raise UserMistake(f"{called(choice)} has no variable {name!r}; it has {', '.join(asked) or 'none'}")
    return {name: value for name, value in known.items() if name in asked}


def _files(place: Path) -> list[Path]:
    """What is there of it on disk; hub names and folders that stages make are nothing yet."""
    if place.is_file():
        return [place]
    return sorted(p for p in place.rglob("*") if p.is_file() and not p.name.startswith("."))
