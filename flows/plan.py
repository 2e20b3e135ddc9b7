"""A run is a plan, then tasks: what a run knows before it makes anything."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from amazon_electra.beam_jobs.core.errors import JobFailed, UserError
from amazon_electra.beam_jobs.core.progress import format_count
from amazon_electra.beam_jobs.core.storage import is_remote
from amazon_electra.beam_jobs.text.splits import read_shares
from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.dumps import labels
from amazon_electra.flows.dumps.preview import Preview, read_previews
from amazon_electra.flows.policy import Counts, Decision, decide
from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.stages.corpus import build_corpus_stage
from amazon_electra.flows.stages.dump import DumpListing, ListedDump, build_dump_stage
from amazon_electra.flows.stages.origin import build_start_stage
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.finetuning.classes import UNKNOWN, ClassesInWords, read_classes


def find_nothing(task: str) -> None:
    """Find no champion of a task; by its name other processes know it."""


@dataclass(frozen=True)
class RunPlan:
    """What a run knows before it makes anything."""

    form: Parameters
    """With its tasks."""
    store: Store
    dump: ListedDump
    previews: Sequence[Preview]
    origin: Stage | None
    """The published encoder that it starts from."""
    classes: Sequence[ClassesInWords] = ()
    """Of tasks that have labels, and of others."""
    find_champion: Callable[[str], Stage | None] = find_nothing
    begun: StageRunner | None = None
    """Make its encoder and corpus already."""
    notes: list[str] = field(default_factory=list)
    """Sentences about what it does, and why, as far as that is known."""

    @cached_property
    def texts(self) -> list[str]:
        """The texts of the first records."""
        found = (review.text for preview in self.previews for review in preview.reviews)
        return [text for text in found if isinstance(text, str)]

    @property
    def unlabelled(self) -> list[ClassesInWords]:
        """The classes that the dump has no label of."""
        return [one for one in self.classes if one.task not in self.form.finetuning.tasks]

    def count(self, corpus: Stage) -> Counts:
        """Return what the corpus counts, or is expected to as long as it is not made."""
        form, tasks = self.form, self.form.finetuning.tasks
        return labels.count_corpus(tasks, corpus, self.store) or labels.estimate_counts(
            tasks, form.dump, form.corpus, self.previews
        )

    def decide(self, counts: Counts) -> Decision:
        """Return what the run does, and note why."""
        decided = decide(self.form, counts)
        self.note(*decided.reasons)
        return decided

    def begin(self) -> Self:
        """Start to make encoder and corpus, for tasks that follow them once a server is there."""
        form, store = self.form, self.store
        if form.engine.is_far or form.engine.prepare or is_remote(store.address):
            return self
        corpus = build_corpus_stage(form, self.dump, store)
        if store.manifest(self.dump) is None:
            store.publish(self.dump, dict(self.dump.result))
        begun = StageRunner(store)
        for stage in (self.origin, corpus):
            if stage and store.manifest(stage) is None:
                begun.begin(stage)
        return replace(self, begun=begun)

    def note(self, *lines: str) -> None:
        """Note each sentence once."""
        self.notes.extend(line for line in lines if line and line not in self.notes)


def plan_run(form: Parameters, store: Store) -> RunPlan:
    """List the dump, read the first records of each file, and find the encoders to start from.

    Raises UserError for what is not there or cannot be read, before anything is made.
    """
    shares = read_shares(form.corpus.split)
    if empty := [side for side in ("train", "dev", "test") if not shares.get(side)]:
        why = f"fine-tuning needs at least 1 for {' and '.join(empty)}"
        raise UserError(why, "corpus.split", form.corpus.split)
    dump = build_dump_stage(form.dump, store)
    previews = read_previews(form.dump, dump)
    chosen = form.finetuning
    tasks = labels.choose_tasks(chosen.tasks, form.dump, previews, bool(chosen.classes))
    return find_starts(form, store, dump, previews, tasks)


def plan_prepared_run(form: Parameters, store: Store, dump: str, tasks: Sequence[str]) -> RunPlan:
    """Return the plan of a run whose data are in the store, `dump` being the folder of its dump.

    Nothing of the dump itself need be on this host.
    """
    made = store.read_manifest(dump)
    if made is None:
        raise JobFailed(f"{dump} is not in the store {store.address}; both hosts need the same one")
    known = ListedDump(DumpListing.model_validate(made["parameters"]), result=made["result"])
    return find_starts(form, store, known, [], tasks)


def find_starts(
    form: Parameters,
    store: Store,
    dump: ListedDump,
    previews: Sequence[Preview],
    tasks: Sequence[str],
) -> RunPlan:
    """Return the plan of a run of these tasks, with the encoders that it starts from."""
    form = form.replace(finetuning=form.finetuning.replace(tasks=tuple(tasks)))
    origin = build_start_stage(form.pretraining, store, dump)
    classes = [read_classes(place) for place in form.finetuning.classes]
    plan = RunPlan(form, store, dump, previews, origin, classes)
    for one in plan.unlabelled:
        plan.note(f"{one.task}: {UNKNOWN}")
    return plan


def list_lines(stages: Sequence[tuple[Stage, bool]], notes: Sequence[str] = ()) -> list[str]:
    """Return a line for each stage: its state, kind, fingerprint and label; then the total, and the
    notes.
    """
    lines = []
    for stage, is_complete in stages:
        state = "complete" if is_complete else "to do"
        lines.append(f"{state:<10}{stage.name:<24}{stage.fingerprint}  {stage.label}")
    return [*lines, format_total(stages), *(f"note: {note}" for note in notes)]


def format_total(stages: Sequence[tuple[Stage, bool]]) -> str:
    """Return how many stages are to do, in one line."""
    todo = sum(not is_complete for _, is_complete in stages)
    if not todo:
        return "nothing to do: every stage is complete"
    return f"{format_count(todo, 'stage')} to do, {len(stages) - todo} complete"


planned: ContextVar[RunPlan | None] = ContextVar("planned", default=None)
"""The plan of the run that this context starts: a flow has only parameters of its form."""
