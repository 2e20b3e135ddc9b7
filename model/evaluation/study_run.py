"""Runs what a study needs, in order: encoders, then settings searched and cells (teachers first), then the report."""

import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from model.command import UserMistake
from model.device import open_device
from model.evaluation import study as studies
from model.evaluation import study_file
from model.evaluation.report import report
from model.evaluation.study import Cell
from model.evaluation.study_described import described
from model.evaluation.study_file import Arm, Pretraining, Study
from model.evaluation.study_jobs import JobFailed, Jobs, claimed
from model.evaluation.study_tracking import Untracked, tracked
from model.finetuning import search_space
from model.json_file import write_json
from model.presets import PRESETS, Preset, with_settings
from model.pretraining.flops import train_flops
from model.progress import progress

ENCODERS = ("discriminator", "encoder", "generator")
"""What model.pretrain exports, the one to fine-tune first."""


@dataclass
class StudyRun:
    study: Study
    output: Path
    """Of the report."""
    keep: Path | None = None
    """Of encoders and cells, which studies may share; None: with the report."""
    at_once: int = 2
    threads: int = 1
    device: str = "auto"
    command: Sequence[str] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    """What is known of where the data are from: dump, stages, command; for the report."""
    _jobs: Jobs = field(default_factory=Jobs, repr=False)
    _tracker: Untracked = field(default_factory=Untracked, repr=False)
    _fingerprints: dict[str, str] = field(default_factory=dict, repr=False)
    _found: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)

    def plan(self) -> dict[str, Any]:
        """What would be run, and what is complete; starts nothing."""
        rows = [
            {"cell": c.title, "folder": str(self.folder(c)), "complete": self.complete(c), "settings": dict(c.settings)}
            for c in self.cells
        ]
        return {"title": self.study.title, "cells": rows, "complete": sum(row["complete"] for row in rows)}

    def run(self) -> dict[str, Any]:
        self.output.mkdir(parents=True, exist_ok=True)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._stop)
            signal.signal(signal.SIGINT, self._stop)
        parameters = {"seeds": list(self.study.seeds), **self.study.settings}
        with tracked(self.study.title, parameters, self.output) as self._tracker:
            return self._run()

    def _run(self) -> dict[str, Any]:
        self._pretrain()
        self._finetune()
        costs = self._latencies() if self.study.latency else {}
        write_json(self.output / "study.json", described(self, costs))
        summary = report(self.output / "study.json", self.output)
        self._tracker.reported(self.output)
        return {"cells": len(self.cells), "answer": summary["answer"], "report": summary["report"]}

    @property
    def _kept(self) -> Path:
        return self.keep or self.output

    @property
    def cells(self) -> list[Cell]:
        """Their settings, and so their folders, follow from what is found for their arm."""
        return list(studies.cells(self.study, self.found))

    @property
    def searched(self) -> dict[str, dict[str, Any]]:
        """Arm → settings found."""
        found = {arm.name: self.found(arm) for arm in study_file.with_grid(self.study)}
        return {name: settings for name, settings in found.items() if settings}

    def found(self, arm: Arm) -> dict[str, Any]:
        """The settings its search found; none before it is through, or where nothing is searched."""
        if self.study.search and arm.name not in self._found:
            file = self._search_folder(arm) / "best.json"
            if not file.exists():
                return {}
            self._found[arm.name] = json.loads(file.read_text())["settings"]
        return self._found.get(arm.name, {})

    def folder(self, cell: Cell) -> Path:
        return self._kept / "cells" / cell.fingerprint(self.study.preset, self._inputs(cell))

    def complete(self, cell: Cell) -> bool:
        return (self.folder(cell) / "evaluation" / "metrics.json").exists()

    def encoder_folder(self, arm: Arm) -> Path:
        """Of an encoder that the study pre-trains: named after everything its preset and settings say, and shards."""
        preset = _preset(arm.pretraining.preset, self._pretraining_settings(arm))
        question = [self.content(arm.pretraining.shards), asdict(preset.architecture), asdict(preset.pretraining)]
        return self._kept / "encoders" / studies.digest(question)

    def encoder(self, arm: Arm) -> str:
        if not arm.pretraining:
            return arm.encoder
        folder = self.encoder_folder(arm)
        return str(next((folder / name for name in ENCODERS if (folder / name).is_dir()), folder))

    def architecture(self, arm: Arm) -> str:
        other = study_file.architecture_of(arm)
        return self.encoder(self.study.arm(other)) if other else arm.architecture

    def teacher(self, cell: Cell) -> Cell | None:
        """The teacher's cell of the same task and seed."""
        name = study_file.teacher_of(cell.arm)
        arms = [arm for arm in study_file.with_grid(self.study) if arm.name == name]
        if not name:
            return None
        if not arms:
            raise UserMistake(f"arm {cell.arm.name}: its teacher {name} is no arm of the study")
        return studies.cell(self.study, arms[0], cell.task, cell.seed, self.found(arms[0]))

    def _inputs(self, cell: Cell) -> dict[str, str]:
        inputs = {"data": self.content(cell.task.data)}
        arm = cell.arm
        if arm.pretraining:
            inputs["encoder"] = self.encoder_folder(arm).name
        elif arm.encoder not in ("random", "half"):
            inputs["encoder"] = self.content(arm.encoder)
        other = study_file.architecture_of(arm)
        if other and self.study.arm(other).pretraining:
            inputs["architecture"] = self._shape(self.study.arm(other))
        elif arm.architecture:
            inputs["architecture"] = self.content(str(self.architecture(arm)))
        teacher = self.teacher(cell) if arm.teacher else None
        if teacher is not None:
            inputs["teacher"] = teacher.fingerprint(self.study.preset, self._inputs(teacher))
        elif arm.teacher:
            inputs["teacher"] = self.content(arm.teacher)
        return inputs

    def _shape(self, arm: Arm) -> str:
        """What a random encoder shares with one that the study pre-trains: everything but its training."""
        preset = _preset(arm.pretraining.preset, arm.pretraining.set)
        shape = {**asdict(preset.architecture), "deviation": preset.pretraining.initial_deviation}
        shape["objective"] = preset.pretraining.objective
        return studies.digest([shape, self.content(str(Path(arm.pretraining.shards) / "vocabulary"))])

    def content(self, path: str) -> str:
        if path not in self._fingerprints:
            self._fingerprints[path] = studies.content_fingerprint(Path(path))
        return self._fingerprints[path]

    def _pretrain(self) -> None:
        """Side by side on a CPU, which small encoders do not fill; one after the other on an accelerator."""
        arms = [arm for arm in self.study.arms if arm.pretraining]
        on_cpu = bool(arms) and open_device(self.device, "auto").kind == "cpu"
        abreast = min(self.at_once, len(arms)) if on_cpu else 1
        threads = max(1, (os.cpu_count() or 1) // abreast) if on_cpu else None
        with ThreadPoolExecutor(max(1, abreast)) as pool:
            list(pool.map(lambda arm: self._pretrain_arm(arm, threads), arms))

    def _pretrain_arm(self, arm: Arm, threads: int | None) -> None:
        folder, settings = self.encoder_folder(arm), self._pretraining_settings(arm)
        title, tags = f"pre-training {arm.name}", {"arm": arm.name, "fingerprint": folder.name}
        with claimed(folder) as lock:
            if (folder / "result.json").exists():
                self._tracker.made_before(title, folder, settings, tags)
                return
            sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
            arguments = ["--shards", arm.pretraining.shards, "--output", str(folder), "--device", self.device]
            arguments += ["--preset", arm.pretraining.preset, *sets, *(["--threads", str(threads)] if threads else [])]
            with self._tracker.job(title, folder, settings, tags):
                self._jobs.run("model.pretrain", arguments, folder, threads, lock)

    def _pretraining_settings(self, arm: Arm) -> dict[str, Any]:
        settings = dict(arm.pretraining.set)
        if arm.pretraining.same_flops_as:
            settings["steps"] = self._steps_for_equal_flops(arm)
        elif arm.pretraining.same_tokens_as:
            settings["steps"] = self._steps_for_equal_tokens(arm)
        return settings

    def _steps_for_equal_flops(self, arm: Arm) -> int:
        """So many steps that both arms' pre-training costs the same (FLOPs as google counts them)."""
        own, other = self._measured_by(arm, "same_flops_as")
        budget = _flops(_preset(other.preset, other.set), other.shards)
        mine = _preset(own.preset, own.set)
        return max(1, round(budget / (_flops(mine, own.shards) / mine.pretraining.steps)))

    def _steps_for_equal_tokens(self, arm: Arm) -> int:
        own, other = self._measured_by(arm, "same_tokens_as")
        theirs, mine = _preset(other.preset, other.set).pretraining, _preset(own.preset, own.set).pretraining
        tokens = theirs.steps * theirs.batch * _tokens_a_sequence(other.shards)
        return max(1, round(tokens / (mine.batch * _tokens_a_sequence(own.shards))))

    def _measured_by(self, arm: Arm, field: str) -> tuple[Pretraining, Pretraining]:
        """The arm's own pre-training, and that of the arm it is to equal."""
        other = self.study.arm(str(getattr(arm.pretraining, field)))
        if not other.pretraining:
            raise UserMistake(f"arm {arm.name}: {field} names {other.name}, which the study does not pre-train")
        return arm.pretraining, other.pretraining

    def _search_folder(self, arm: Arm) -> Path:
        """Named after the search and all that its trials depend on."""
        first = self._first(arm)
        cell = first.fingerprint(self.study.preset, self._inputs(first))
        return self._kept / "search" / studies.digest([self.study.search.model_dump(), cell])

    def _first(self, arm: Arm) -> Cell:
        """The cell whose settings are searched: on dev of the first task, with the first seed."""
        return studies.cell(self.study, arm, self.study.tasks[0], self.study.seeds[0], {})

    def _search(self, arm: Arm) -> None:
        """Each arm gets what is best for it: settings found for another one would favour that one."""
        space = self.study.search.space if arm.teacher else search_space.without_teacher(self.study.search.space)
        if not space:
            return
        folder = self._search_folder(arm)
        with claimed(folder) as lock:
            if (folder / "best.json").exists():
                return
            folder.mkdir(exist_ok=True)
            write_json(folder / "space.json", space)
            arguments = [*self._finetune_arguments(self._first(arm), folder), "--space", str(folder / "space.json")]
            arguments += ["--trials", str(self.study.search.trials)]
            self._jobs.run("model.finetuning.search", arguments, folder, self.threads, lock)

    def _finetune(self) -> None:
        """Teachers before their students. One failed cell does not stop the others; it is told at the end."""
        done = 0
        failures: list[JobFailed | UserMistake] = []
        cells = len(self.cells)
        with progress(cells, "cells", self.study.title) as shown, ThreadPoolExecutor(self.at_once) as pool:
            for wave in waves(study_file.with_grid(self.study)):
                list(pool.map(self._search, wave))
                names = {arm.name for arm in wave}
                for failure in pool.map(self._cell, [cell for cell in self.cells if cell.arm.name in names]):
                    done += 1
                    shown.update(done)
                    failures += [failure] if failure else []
        if failures:
            raise type(failures[0])(f"{len(failures)} of {cells} cells failed; the first: {failures[0]}")

    def _cell(self, cell: Cell) -> JobFailed | UserMistake | None:
        """What went wrong, if anything did."""
        if not self.complete(cell):
            teacher = self.teacher(cell)
            if teacher and not self.complete(teacher):
                return JobFailed(f"{cell.title}: its teacher failed, {teacher.title}")
            with claimed(self.folder(cell)) as lock:
                if not self.complete(cell):
                    return self._finetune_cell(cell, lock)
        folder = self.folder(cell)
        self._tracker.made_before(cell.title, folder / "model", cell.settings, self._tags(cell), folder / "evaluation")
        return None

    def _tags(self, cell: Cell) -> dict[str, str]:
        fingerprint = self.folder(cell).name
        return {"arm": cell.arm.name, "task": cell.task.name, "seed": str(cell.seed), "fingerprint": fingerprint}

    def _finetune_cell(self, cell: Cell, lock: int) -> JobFailed | UserMistake | None:
        folder = self.folder(cell)
        arguments = self._finetune_arguments(cell, folder / "model")
        try:
            arguments += ["--evaluation", str(folder / "evaluation")]
            with self._tracker.job(cell.title, folder / "model", cell.settings, self._tags(cell)):
                self._jobs.run("model.finetune", arguments, folder, self.threads, lock)
                self._tracker.measured(cell.title, folder / "evaluation")
        except (JobFailed, UserMistake) as failure:
            return type(failure)(f"{cell.title}: {failure}")
        return None

    def _finetune_arguments(self, cell: Cell, output: Path) -> list[str]:
        arguments = ["--encoder", self.encoder(cell.arm), "--task", cell.task.task, "--data", cell.task.data]
        arguments += ["--output", str(output), "--seed", str(cell.seed), "--device", self.device]
        architecture, taught_by = self.architecture(cell.arm), self.teacher(cell)
        teacher = str(self.folder(taught_by) / "model") if taught_by else cell.arm.teacher
        arguments += ["--architecture", architecture] if architecture else []
        if teacher:
            arguments += ["--teacher", teacher, "--teacher_outputs", str(self._kept / "teachers")]
        arguments += ["--preset", self.study.preset] if self.study.preset else []
        return arguments + [part for assignment in cell.assignments() for part in ("--set", assignment)]

    def _latencies(self) -> dict[str, Any]:
        """One cell of each arm, one after the other, alone on the machine."""
        measured: dict[str, Any] = {}
        for cell in self.cells:
            if cell.arm.name in measured:
                continue
            folder = self.folder(cell)
            with claimed(folder) as lock:
                if not (folder / "latency.json").exists():
                    arguments = ["--model", str(folder / "model"), "--task", cell.task.task, "--data", cell.task.data]
                    arguments += ["--output", str(folder / "latency.json"), "--device", self.device]
                    self._jobs.run("model.evaluation.latency", arguments, folder, 1, lock)
            measured[cell.arm.name] = json.loads((folder / "latency.json").read_text())
        return measured

    def _stop(self, number: int, frame: Any) -> None:
        self._jobs.stop()
        raise KeyboardInterrupt


def waves(arms: Sequence[Arm]) -> Iterator[list[Arm]]:
    """Arms that no arm teaches, then those that these teach, and so on."""
    waiting, through = list(arms), {""}
    while waiting:
        ready = [arm for arm in waiting if study_file.teacher_of(arm) in through]
        if not ready:
            named = ", ".join(arm.name for arm in waiting)
            raise UserMistake(f"arms {named}: each waits for a teacher that waits for another: name one that does not")
        yield ready
        through |= {arm.name for arm in ready}
        waiting = [arm for arm in waiting if arm.name not in through]


def _preset(name: str, settings: Mapping[str, Any]) -> Preset:
    try:
        return with_settings(PRESETS[name], {key: str(value) for key, value in settings.items()})
    except (KeyError, ValueError) as error:
        raise UserMistake(f"pretraining: preset {name}: {error}") from error


def _flops(preset: Preset, shards: str) -> float:
    """Of the whole pre-training."""
    about = json.loads((Path(shards) / "shards.json").read_text())
    vocabulary = sum(1 for _ in (Path(shards) / "vocabulary" / "vocab.txt").open(encoding="utf-8"))
    length = int(about.get("max_length") or preset.max_length)
    sequences = preset.pretraining.steps * preset.pretraining.batch
    return train_flops(preset.architecture, vocabulary, length, sequences, preset.pretraining.objective)


def _tokens_a_sequence(shards: str) -> float:
    about = json.loads((Path(shards) / "shards.json").read_text())
    return float(about["tokens"] / about["sequences"])
