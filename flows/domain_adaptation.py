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
from amazon_electra.flows.stages import cells as planning
from amazon_electra.flows.stages import model, pretraining, report
from amazon_electra.flows.stages.finetuning import Finetuned
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
        trained = [pretraining.build_contrastive_stage(p, corpus, origin)]
    elif data.shards:
        trained = [
            pretraining.build_pretraining_stage(p, data.shards, origin, data.dev, at_once - 1)
        ]
    encoder = trained[0] if trained else origin or corpus

    about = data.length, counts, corpus, encoder, origin, run.classes
    every = list(planning.list_cells(p, decided.arms, *about))
    cells, curve = ([c for c in every if ("labels" in c.labels) is one] for one in (False, True))
    # What needs no new encoder is made beside its training, the rest after it; an accelerator
    # trains alone, after the first answers.
    is_shared = not pretraining.has_accelerator(p.pretraining.device)

    def is_late(cell: Finetuned) -> bool:
        is_slow = not (is_shared or find_arm(cell.config.arm).is_cheap)
        return is_slow or cell.is_made_of([one.fingerprint for one in trained])

    ready, late = ([c for c in every if is_late(c) is one] for one in (False, True))
    steps: list[tuple[list[Stage], list[Finetuned]]] = [(trained, ready), ([], late)]
    if not is_shared:
        steps = [([], ready), (trained, []), ([], late)]
    made, failed = [*data.made, *trained], dict[str, Exception]()
    try:
        for trainings, own in steps:
            chains = planning.order_chains(
                [c for c in own if not planning.find_failure(c, failed)], counts
            )
            group = Group([*([one] for one in trainings), *chains], at_once, may_fail=True)
            failed |= (yield group) or {}
    except KeyboardInterrupt:  # the best so far becomes the model
        cells, curve = planning.keep_complete(cells, store), planning.keep_complete(curve, store)
        if not cells:
            raise
        made = [stage for stage in made if store.manifest(stage)]
        again = report.format_command(p, "run")
        run.note(f"stopped: the model is the best of what is complete; continue with: {again}")
    causes = {cell.title: planning.find_failure(cell, failed) for cell in cells}
    cells, curve = (
        [c for c in own if not planning.find_failure(c, failed)] for own in (cells, curve)
    )
    if not (cells or run.unlabelled):
        raise next(iter(failed.values()))
    made = [stage for stage in made if stage.path not in failed]
    encoder = encoder if encoder in made else origin or corpus

    models = model.build_model_stages(cells, corpus, p.finetuning.target_accuracy)
    device, asked = p.pretraining.finetuning_device, run.unlabelled
    require(not asked or encoder is not corpus, "needs an encoder", "finetuning.classes")
    unlabelled = model.build_unlabelled_stages(asked, corpus, encoder, device)
    yield Group([[one] for one in (*models, *unlabelled)], at_once)
    if not cells:
        return  # nothing was measured
    if find_champion:
        yield Group([[one] for one in model.compare_with_champions(models, find_champion)])
    failures = [f"{title} failed: {cause}" for title, cause in causes.items() if cause]
    shown = made, encoder, cells, curve, models, failures, data.reading
    yield Group.of(report.build_report_stage(p, run.dump, *shown))


@flow(name="domain-adaptation", flow_run_name=name_run)
@take_fields(Parameters)
def domain_adaptation(**form: Any) -> dict[str, Any]:
    """Adapt a language model to a dump of reviews, fine-tune it on their labels, and report what
    that was worth. Whatever the store holds already is not made again.
    """
    p = Parameters(**form)
    plan = have_prepared(p, Store(p.store)) if p.engine.prepare else None
    return run_plan(p, graph, plan)
