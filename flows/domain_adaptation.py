"""START HERE: the whole graph on one page.

`graph` names every stage and what it is made of; each is a folder in the store, made by a job of
its own. The flow below goes through it with Prefect: one task per stage, retried where that may
help, shown in the UI, mirrored to MLflow. Stages the store holds already are not made again, so a
repeated run does nothing and an interrupted one continues.
"""

from functools import partial
from typing import Any

from prefect import flow

from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.configuration.form_tools import take_fields
from amazon_electra.flows.plan import RunPlan
from amazon_electra.flows.runs.graph_run import name_run, run_plan
from amazon_electra.flows.stages import arms, report
from amazon_electra.flows.stages.cells import group_cells, keep_complete, list_chains
from amazon_electra.flows.stages.comparison import compare_with_champions
from amazon_electra.flows.stages.contrastive_adaptation import build_contrastive_stage
from amazon_electra.flows.stages.corpus import build_corpus_stage
from amazon_electra.flows.stages.model import build_model_stages
from amazon_electra.flows.stages.origin import warn_of_languages
from amazon_electra.flows.stages.pretraining import build_pretraining_stage, shares_cores
from amazon_electra.flows.stages.shards import (
    build_dev_stage,
    build_shards_stage,
    choose_sequence_length,
)
from amazon_electra.flows.stages.text_length import measure_length
from amazon_electra.flows.stages.vocabulary import build_vocabulary_stage
from amazon_electra.flows.store.group import Group, Groups
from amazon_electra.flows.store.stage import Resources, Stage


def graph(run: RunPlan) -> Groups:
    """Dump → corpus → (vocabulary → shards →) pre-training → arms × tasks → model, report."""
    p, store, dump, origin = run.form, run.store, run.dump, run.origin
    corpus = build_corpus_stage(p.corpus, p.dump, p.engine, dump, store)
    made = [dump, *([origin] if origin else []), *run.others, corpus]
    for stage in made:
        yield Group.of(stage)
    counts = run.count(corpus)  # from here on those of the corpus decide, once it is made
    decided = run.decide(counts)
    length = measure_length(p.finetuning, p.recipe, store, corpus, origin, run.texts)
    if origin:
        run.note(length.describe(), warn_of_languages(store, origin, corpus, run.texts))

    at_once, trained = p.finetuning.at_once, list[Stage]()
    if origin and decided.adaptation == "contrast":
        trained = [build_contrastive_stage(p.pretraining, corpus, origin, beside=at_once - 1)]
    elif decided.adaptation == "text":
        tokens = choose_sequence_length(p.shards, p.recipe, origin, store)
        vocabulary = build_vocabulary_stage(p.vocabulary, p.recipe, corpus, origin)
        engine = Resources(engine=p.engine, workers=p.corpus.workers)
        shards = build_shards_stage(tokens, corpus, vocabulary, engine)
        dev = build_dev_stage(tokens, corpus, vocabulary)
        for stage in (vocabulary, shards, dev):
            yield Group.of(stage)
        trained = [build_pretraining_stage(p, shards, origin=origin, dev=dev, beside=at_once - 1)]
        made += [vocabulary, shards, dev]
    encoder = trained[0] if trained else origin or corpus

    settings = arms.choose_settings(p.finetuning, p.recipe, counts, length, bool(origin))
    sources = corpus, encoder, origin, run.others
    list_cells = partial(arms.list_cells, p, decided.arms, settings, counts, store, *sources)
    cells, curve = list(list_cells()), list(list_cells(is_curve=True))
    ready = [cell for cell in cells if not (trained and cell.is_made_of(encoder))]
    try:
        # The first answers are those of arms that take seconds.
        first = [cell for cell in ready if cell.is_cheap]
        yield Group(list_chains(first), at_once)
        # What else needs no new encoder is made beside its training, the rest after it.
        beside = shares_cores(p.pretraining.device, p.engine)
        early = [cell for cell in ready if beside and not (cell.parts or cell.is_cheap)]
        yield Group([*([trained] if trained else []), *list_chains(early)], at_once)
        made += trained
        late = [cell for cell in [*cells, *curve] if not cell.is_among([*first, *early])]
        yield from group_cells(late, at_once)
    except KeyboardInterrupt:  # the best so far becomes the model
        cells, curve = keep_complete(cells, store), keep_complete(curve, store)
        if not cells:
            raise
        made = [stage for stage in made if store.manifest(stage)]
        encoder = encoder if encoder in made else origin or corpus
        run.note(
            "stopped: the model and the report are made of what is complete, "
            f"{'; '.join(dict.fromkeys(cell.arm for cell in cells))}; continue with: "
            f"{report.format_command(p)}"
        )

    models = build_model_stages(cells, corpus, p.finetuning.target_accuracy)
    for model in models:
        yield Group.of(model)
    for comparison in compare_with_champions(models, run.find_champion):
        yield Group.of(comparison)
    about = report.format_command(p), p.recipe, dump, made, encoder, cells, curve, models
    yield Group.of(report.build_report_stage(*about))


@flow(name="domain-adaptation", flow_run_name=name_run)
@take_fields(Parameters)
def domain_adaptation(**form: Any) -> dict[str, Any]:
    """Adapt a language model to a dump of reviews and measure what that was worth.

    Reads the dump, learns a vocabulary, pre-trains ELECTRA, fine-tunes it and an untrained encoder
    on the dump's own labels, and reports the difference with its confidence interval. Whatever the
    store holds already is not made again.
    """
    return run_plan(Parameters(**form), graph)
