"""A run is a plan, then tasks: what a run knows before it makes anything."""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Self

from amazon_electra.beam_jobs.core.errors import JobFailed, UserError
from amazon_electra.beam_jobs.core.progress import format_count
from amazon_electra.beam_jobs.core.storage import is_remote
from amazon_electra.beam_jobs.text.splits import read_shares
from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.dumps.labels import choose_tasks
from amazon_electra.flows.dumps.preview import Preview, read_previews
from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.stages.corpus import build_corpus_stage
from amazon_electra.flows.stages.dump import DumpListing, ListedDump, build_dump_stage
from amazon_electra.flows.stages.origin import build_start_stage
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.finetuning.classes import UNKNOWN, ClassesInWords, read_classes


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
    classes: Sequence[ClassesInWords]
    """Of tasks that have labels, and of others."""
    begun: StageRunner | None = None
    """Make its encoder and corpus already."""
    notes: list[str] = field(default_factory=list)
    """Sentences about what it does, and why, as far as that is known."""

    @property
    def unlabelled(self) -> list[ClassesInWords]:
        """The classes that the dump has no label of."""
        return [one for one in self.classes if one.task not in self.form.finetuning.tasks]

    def begin(self) -> Self:
        """Start to make encoder and corpus, for tasks that follow them once a server is there."""
        form, store = self.form, self.store
        if form.engine.kind != "local" or form.engine.prepare or is_remote(store.address):
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


def plan_run(form: Parameters, store: Store, prepared: dict[str, Any] | None = None) -> RunPlan:
    """List the dump, read the first records of each file, and find the encoders to start from.
    What the deployment `prepare` has made is known by the path of its `dump` in the store and by
    its `tasks`; nothing of the dump itself need be on this host.

    Raises UserError for what is not there or cannot be read, before anything is made.
    """
    chosen = form.finetuning
    if prepared:
        made, why = store.read_manifest(prepared["dump"]), "both hosts need the same store"
        if made is None:
            raise JobFailed(f"{prepared['dump']} is not in {store.address}; {why}")
        dump = ListedDump(DumpListing.model_validate(made["parameters"]), result=made["result"])
        previews, tasks = list[Preview](), prepared["tasks"]
    else:
        shares = read_shares(form.corpus.split)
        if empty := [side for side in ("train", "dev", "test") if not shares.get(side)]:
            why = f"fine-tuning needs at least 1 for {' and '.join(empty)}"
            raise UserError(why, "corpus.split", form.corpus.split)
        dump = build_dump_stage(form.dump, store)
        previews = read_previews(form.dump, dump)
        tasks = choose_tasks(chosen.tasks, form.dump, previews, bool(chosen.classes))
    form = form.replace(finetuning=chosen.replace(tasks=tuple(tasks)))
    origin = build_start_stage(form.pretraining, store, dump)
    classes = [read_classes(place) for place in chosen.classes]
    plan = RunPlan(form, store, dump, previews, origin, classes)
    plan.note(*(f"{one.task}: {UNKNOWN}" for one in plan.unlabelled))
    return plan


def list_lines(stages: Sequence[tuple[Stage, bool]], notes: Sequence[str] = ()) -> list[str]:
    """Return the notes, a line for each stage, its state, kind, fingerprint and label, and last how
    many are to do.
    """
    lines, todo = [f"note: {note}" for note in notes], sum(not complete for _, complete in stages)
    for stage, is_complete in stages:
        state = "complete" if is_complete else "to do"
        lines.append(f"{state:<10}{stage.name:<24}{stage.fingerprint}  {stage.label}")
    total = f"{format_count(todo, 'stage')} to do, {len(stages) - todo} complete"
    return [*lines, total if todo else "nothing to do: every stage is complete"]


planned: ContextVar[RunPlan | None] = ContextVar("planned", default=None)
"""The plan of the run that this context starts: a flow has only parameters of its form."""
