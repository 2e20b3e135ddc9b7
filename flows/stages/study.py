"""A study: arms × tasks × seeds × settings from a study file, its cells cached inside its own folder."""

from pathlib import Path

from beam_jobs.command import UserMistake
from flows.parameters import Parameters, StudyChoice
from flows.store import Stage
from model.evaluation.study import SHIPPED


def stage(parameters: Parameters, choice: StudyChoice, corpus: Stage, shards: Stage, encoder: Stage) -> Stage:
    """The file may use ${corpus}, ${shards}, ${encoder} and ${steps}, and what `variables` gives."""
    given = Path(choice.file).expanduser()
    file = given if given.suffix else SHIPPED / f"{choice.file}.yaml"
    if not file.is_file():
        raise UserMistake(
            f"study.file: no file {file}; shipped are {', '.join(sorted(p.stem for p in SHIPPED.glob('*.yaml')))}"
        )
    variables = {"steps": str(parameters.pretraining.steps or 2_000), **choice.variables}
    return Stage(
        "study",
        1,
        {"text": file.read_text(), "variables": variables},
        {"corpus": corpus, "shards": shards, "encoder": encoder},
        "model.study",
        lambda store, folder: [
            str(file),
            *["--output", str(folder), "--at_once", str(choice.at_once), "--device", parameters.pretraining.device],
            *["--var", f"corpus={store.folder(corpus)}", "--var", f"shards={store.folder(shards)}"],
            *["--var", f"encoder={store.folder(encoder) / 'discriminator'}"],
            *(word for name, value in variables.items() for word in ("--var", f"{name}={value}")),
        ],
        title=f"study {file.stem}",
    )
