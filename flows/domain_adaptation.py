"""START HERE: the whole graph on one page.

`graph` names every stage and what it is made of; each is a folder in the store, made by a job of
its own. The flow below goes through it with Prefect: one task per stage, retried where that may
help, shown in the UI, mirrored to MLflow. Stages the store holds already are not made again, so a
repeated run does nothing and an interrupted one continues.
"""

from typing import Any

from prefect import flow

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.configuration.form_tools import take_fields
from amazon_electra.flows.plan import RunPlan
from amazon_electra.flows.prepare import have_prepared, make_data
from amazon_electra.flows.runs.graph_run import FindChampion, name_run, run_plan
from amazon_electra.flows.stages import report
from amazon_electra.flows.stages.cells import (
    Failed,
    find_failure,
    keep_complete,
    list_cells,
    order_chains,
)
from amazon_electra.flows.stages.finetuning import Finetuned
from amazon_electra.flows.stages.model import (
    build_model_stages,
    build_unlabelled_stages,
    compare_with_champions,
)
from amazon_electra.flows.stages.pretraining import (
    build_contrastive_stage,
    build_pretraining_stage,
    has_accelerator,
)
from amazon_electra.flows.store.stage import Group, Groups, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.arms import find_arm


def graph(run: RunPlan, find_champion: FindChampion = None) -> Groups:
    """Dump → corpus → (vocabulary → shards →) pre-training → arms × tasks → model, report."""
    p, store, origin = run.form, run.store, run.origin
    data = yield from make_data(run)
    corpus, counts, decided = data.corpus, data.counts, data.decided
    at_once, trained = p.finetuning.at_once, list[Stage]()
    if origin and decided.adaptation == "contrast":
        trained = [build_contrastive_stage(p.pretraining, corpus, origin, beside=at_once - 1)]
    elif data.shards:
        sources = {"origin": origin, "dev": data.dev}
        trained = [build_pretraining_stage(p, data.shards, beside=at_once - 1, **sources)]
    encoder = trained[0] if trained else origin or corpus

    known = p, decided.arms, data.length, counts, corpus, encoder, origin, run.classes
    every = list(list_cells(*known))
    cells, curve = ([c for c in every if ("labels" in c.labels) is one] for one in (False, True))
    # What needs no new encoder is made beside its training, the rest after it; an accelerator
    # trains alone, after the first answers.
    is_shared = not has_accelerator(p.pretraining.device)

    def is_late(cell: Finetuned) -> bool:
        is_slow = not (is_shared or find_arm(cell.config.arm).is_cheap)
        return is_slow or cell.is_made_of([one.fingerprint for one in trained])

    ready, late = ([c for c in every if is_late(c) is one] for one in (False, True))
    steps: list[tuple[list[Stage], list[Finetuned]]] = [(trained, ready), ([], late)]
    if not is_shared:
        steps = [([], ready), (trained, []), ([], late)]
    made, failed = [*data.made, *trained], Failed()
    try:
        for trainings, own in steps:
            chains = order_chains([c for c in own if not find_failure(c, failed)], counts)
            group = Group([*([one] for one in trainings), *chains], at_once, may_fail=True)
            failed |= (yield group) or {}
    except KeyboardInterrupt:  # the best so far becomes the model
        cells, curve = keep_complete(cells, store), keep_complete(curve, store)
        if not cells:
            raise
        made = [stage for stage in made if store.manifest(stage)]
        run.note(
            "stopped: the model and the report are made of what is complete, "
            f"{'; '.join(report.group_by_arm(cells))}; continue with: "
            f"{report.format_command(p)}"
        )
    causes = {cell.title: find_failure(cell, failed) for cell in cells}
    cells, curve = ([c for c in own if not find_failure(c, failed)] for own in (cells, curve))
    if not (cells or run.unlabelled):
        raise next(iter(failed.values()))
    made = [stage for stage in made if stage.path not in failed]
    encoder = encoder if encoder in made else origin or corpus

    models = build_model_stages(cells, corpus, p.finetuning.target_accuracy)
    device, asked = p.pretraining.finetuning_device, run.unlabelled
    require(not asked or encoder is not corpus, "needs an encoder", "finetuning.classes")
    unlabelled = build_unlabelled_stages(asked, corpus, encoder, device)
    yield Group([[model] for model in (*models, *unlabelled)], at_once)
    if not cells:
        return  # nothing was measured
    if find_champion:
        yield Group([[one] for one in compare_with_champions(models, find_champion)])
    yield Group.of(
        report.build_report_stage(
            p,
            run.dump,
            made,
            encoder,
            cells,
            curve=curve,
            models=models,
            failures=[f"{title} failed: {cause}" for title, cause in causes.items() if cause],
            reading=data.reading,
        )
    )


@flow(name="domain-adaptation", flow_run_name=name_run)
@take_fields(Parameters)
def domain_adaptation(**form: Any) -> dict[str, Any]:
    """Adapt a language model to a dump of reviews and measure what that was worth.

    Reads the dump, learns a vocabulary, pre-trains ELECTRA, fine-tunes it and an untrained encoder
    on the dump's own labels, and reports the difference with its confidence interval. Whatever the
    store holds already is not made again.
    """
    p = Parameters(**form)
    plan = have_prepared(p, Store(p.store)) if p.engine.prepare else None
    return run_plan(p, graph, plan)
