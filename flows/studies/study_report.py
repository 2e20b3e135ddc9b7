"""The report of a study: the stage, and the description of the study that its job reads."""

import json
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from beam_jobs.core.files import hash_file
from flows.configuration.form import Parameters
from flows.configuration.study_file import (
    Arm,
    Study,
    StudyChoice,
    find_teacher,
    is_without_folder,
    list_pairs,
)
from flows.stages.origin import locate_stage
from flows.stages.pretraining import locate_encoder
from flows.stages.report import (
    describe_dump,
    describe_origins,
    describe_stages,
    list_changed_settings,
    list_written_steps,
)
from flows.stages.versions import VERSIONS
from flows.store.store import Stage, Store
from flows.studies.study_reading import LoadedStudy, find_study_file
from flows.studies.study_stages import StudyStages
from model.report.inputs import ArmFacts, CellFacts, ReportInput, StageFacts, TrainingFacts


def build_study_report(
    stages: StudyStages, parameters: Parameters, counted: Sequence[Stage]
) -> Stage:
    """Return the stage of the report; `counted` are the stages whose counts it shows."""
    loaded = stages.loaded

    def list_arguments(store: Store, folder: Path) -> list[str]:
        shutil.copyfile(find_study_file(loaded.choice.file), folder / "study.yaml")
        describe_study(stages, parameters, counted).write(folder / "study.json")
        return ["--study", str(folder / "study.json"), "--output", str(folder)]

    inputs = {cell.evaluated.label: cell.evaluated for cell in stages.cells}
    inputs |= {stage.label: stage for stage in stages.latencies.values()}
    return Stage(
        "study",
        VERSIONS["study"],
        {
            "study": loaded.study.model_dump(mode="json", exclude_defaults=True),
            "left_out": dict(loaded.left_out),
        },
        inputs,
        "model.report.report",
        list_arguments,
        title=loaded.choice.title,
    )


def describe_study(
    stages: StudyStages, parameters: Parameters, counted: Sequence[Stage]
) -> ReportInput:
    """Return study.json, as model/report/report.py reads it."""
    study, store = stages.study, stages.store
    placed = place_study(stages)
    dump = next((stage for stage in counted if stage.name == "dump"), None)
    return ReportInput(
        title=study.title,
        question=study.question,
        command=format_command(stages.loaded, parameters),
        comparisons=list_pairs(study),
        arms=[describe_arm(stages, arm, placed) for arm in stages.arms.values()],
        left_out=dict(stages.loaded.left_out),
        dump=describe_dump(dump) if dump else {},
        synthetic=bool(dump and dump.result.get("synthetic")),
        stages=describe_stages(store, counted) if counted else describe_corpora(stages),
        pretraining=[
            TrainingFacts(
                name=stage.label.removeprefix("pre-training "),
                metrics=store.fetch(stage, "metrics.jsonl") / "metrics.jsonl",
            )
            for _, _, stage in stages.pretrainings
        ],
        cells=[
            CellFacts(
                arm=cell.arm.name,
                task=cell.task.name,
                seed=cell.seed,
                pretraining_seed=cell.pretraining_seed,
                evaluation=store.fetch(cell.evaluated),
                finetuned=store.fetch(cell.finetuned, "result.json", "metrics.jsonl"),
            )
            for cell in stages.cells
        ],
        origins=describe_origins(store, stages.origins),
    )


def place_study(stages: StudyStages) -> Study:
    """Return the study with the folders that its places are now, and each arm's first encoder."""
    store = stages.store

    def place_arm(arm: Arm) -> Arm:
        update: dict[str, Any] = {}
        if arm.pretraining:
            placed = {"shards": locate_stage(store, stages.find_source(arm.pretraining.shards))}
            update["pretraining"] = arm.pretraining.model_copy(update=placed)
        elif not is_without_folder(arm.encoder):
            update["encoder"] = locate_encoder(store, stages.find_encoder(arm, None))
        return arm.model_copy(update=update)

    tasks = [
        task.model_copy(update={"data": locate_stage(store, stages.find_source(task.data))})
        for task in stages.study.tasks
    ]
    arms = [place_arm(arm) for arm in stages.arms.values()]
    return stages.study.model_copy(update={"tasks": tasks, "arms": arms})


def describe_corpora(stages: StudyStages) -> list[StageFacts]:
    """Return the counts of external corpora that the tasks are from."""
    described = []
    for place in dict.fromkeys(task.data for task in stages.study.tasks):
        stage = stages.find_source(place)
        file = Path(locate_stage(stages.store, stage)) / "corpus.json"
        if file.exists():
            counts = json.loads(file.read_text())
            counts.pop("files", None)
            name = f"corpus {file.parent.name}"
            described.append(StageFacts(stage=name, counts=counts))
    return described


def describe_arm(stages: StudyStages, arm: Arm, placed: Study) -> ArmFacts:
    """Return what is known of an arm: what its encoder has seen, what it cost, how fast it is."""
    arms = {one.name: one for one in placed.arms}
    arm_here = arms[arm.name]
    seen = list_seen_shards(arm_here, arms)
    origin, latency = stages.find_arm_origin(arm), stages.latencies.get(arm.name)
    seeds = stages.study.pretraining_seeds if arm.pretraining else []
    trained = {seed: stages.build_pretraining(arm, seed) for seed in seeds}
    result = read_json(stages.store, trained[seeds[0]], "result.json") if trained else {}
    return ArmFacts(
        name=arm.name,
        data_known=is_data_known(arm_here, arms),
        held_out=[t.name for t in placed.tasks if is_held_out(t.data, seen)] if seen else None,
        origin=origin.fingerprint if origin else "",
        written_steps=list_written_steps(stages.store, list(trained.values())),
        tokens=result.get("tokens"),
        matrix_flops=result.get("matrix_flops"),
        seconds=result.get("seconds"),
        cost=read_json(stages.store, latency, "latency.json") if latency else None,
    )


def read_json(store: Store, stage: Stage, name: str) -> Any:
    return json.loads((store.fetch(stage, name) / name).read_text())


def format_command(loaded: LoadedStudy, parameters: Parameters) -> str:
    """Return what makes the study again, as a shell reads it."""
    choice = loaded.choice
    words = ["amazon-electra", "study", choice.file]
    words += ["--recipe", parameters.recipe, "--store", parameters.store]
    words += ["--dump", *parameters.dump.paths] if loaded.reads_dump else []
    words += ["--general", *choice.general_text] if choice.general_text else []
    words += ["--at-once", str(choice.at_once)] if choice.at_once != StudyChoice().at_once else []
    own = [f"{name}={value}" for name, value in {**choice.variables, **choice.settings}.items()]
    settings = [word for text in own for word in ("--set", text)]
    return shlex.join([*words, *list_changed_settings(parameters), *settings])


def is_data_known(arm: Arm, arms: Mapping[str, Arm]) -> bool:
    """Return whether it is known what the arm's encoder, and those of its teachers, were trained
    on.
    """
    return all(_is_known(one) for one in _list_teachers(arm, arms))


def list_seen_shards(arm: Arm, arms: Mapping[str, Arm]) -> frozenset[str]:
    """Return the folders of shards that the arm's encoder, and those of its teachers, were
    pre-trained on.
    """
    return frozenset(shards for one in _list_teachers(arm, arms) for shards in _list_shards(one))


def is_held_out(data: str, shards: Iterable[str]) -> bool:
    """Return whether the test texts of a task were kept out of every one of these folders of
    shards.

    `data` of a corpus: the shards are of its pretrain split, from which near copies of the others'
    texts were withheld, or its test reviews were withheld. Other `data`: each of its files was
    withheld.
    """
    return all(_is_withheld(Path(data), Path(folder)) for folder in shards)


def _list_teachers(arm: Arm, arms: Mapping[str, Arm]) -> Iterator[Arm]:
    yield arm
    if find_teacher(arm):
        yield from _list_teachers(arms[find_teacher(arm)], arms)


def _is_known(arm: Arm) -> bool:
    if arm.training_data:
        return arm.training_data == "known"
    if arm.teacher and not find_teacher(arm):
        return False
    return is_without_folder(arm.encoder) or bool(_list_shards(arm))


def _list_shards(arm: Arm) -> list[str]:
    if arm.pretraining:
        return [arm.pretraining.shards]
    return [] if is_without_folder(arm.encoder) else list_encoder_shards(Path(arm.encoder))


def list_encoder_shards(encoder: Path) -> list[str]:
    """Return the shards of a folder that model.pretrain exported; none where it is another, or was
    begun from other weights.
    """
    config, result = encoder.parent / "config.json", encoder.parent / "result.json"
    if not config.is_file() or not result.is_file():
        return []
    told = json.loads(config.read_text())
    if "shards" not in told or told.get("start_from") != "":
        return []
    return [told["shards"], *told.get("replay", [])]


def _is_withheld(data: Path, shards: Path) -> bool:
    made_of = _read_lineage(shards)
    if (data / "corpus.json").is_file():
        return _is_made_of(data, made_of, "withheld_corpus") or (
            _is_made_of(data, made_of) and _withholds_own(data)
        )
    files = (
        [data]
        if data.is_file()
        else [p for p in data.rglob("*") if p.is_file() and not p.name.startswith(".")]
    )
    withheld = {named.rpartition(" ")[2] for named in made_of.get("withheld", [])}
    return bool(files) and all(_hash_file_once(file)[:16] in withheld for file in files)


def _is_made_of(corpus: Path, made_of: Mapping[str, Any], role: str = "corpus") -> bool:
    return _hash_file_once(corpus / "corpus.json") == made_of.get(role)


def _withholds_own(corpus: Path) -> bool:
    """Return whether a corpus says that near copies of its dev and test reviews were withheld from
    its pretrain split; one that was made before that could be chosen does not.
    """
    told = json.loads((corpus / "corpus.json").read_text())
    return bool(told.get("agreed", {}).get("withhold_own"))


def _read_lineage(shards: Path) -> Mapping[str, Any]:
    file = shards / "shards.json"
    told = json.loads(file.read_text()) if file.is_file() else {}
    return told.get("made_of", {}) if told.get("split", "pretrain") == "pretrain" else {}


@cache
def _hash_file_once(file: Path) -> str:
    """Return the hash of a file, computed once: evaluation sets may be large, and every arm asks
    for the same ones.
    """
    return hash_file(file)
