"""A new dump is added to what a model has seen, and the model goes on from there.

`added` is the way of one dump on one page. Only the new dump is read: its corpus leaves out what the earlier corpora
have, the first round's vocabulary is kept, pre-training goes on from the base's weights on new sequences and a share of
old ones, and the study asks the test sets of the first dump, which stay held out for ever.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from flows import increments, servers
from flows.completion import Maker, Plan
from flows.failures import NOTED
from flows.parameters import Addition, Comparison, Dump, Increment, Parameters, Promotion
from flows.presentation import run_logger
from flows.stages import dump as dump_stage
from flows.stages import finetuning as finetuning_stage
from flows.stages import report
from flows.store import Stage, Store
from flows.tasks import asked, chosen, going_through, titled
from model.registry import Registry


def run_name() -> str:
    """Dump, base and date."""
    return titled(f"added to {chosen('increment', 'base', 'last')[:8]}")


@flow(name="add-dump", flow_run_name=run_name, **NOTED)
def add_dump(
    dump: Dump = Dump(),  # noqa: B008 - frozen, and the form shows what it holds
    increment: Increment = Increment(),  # noqa: B008
    finetuning: Comparison = Comparison(),  # noqa: B008
    promotion: Promotion = Promotion(),  # noqa: B008
    store: str = "store",
) -> dict[str, Any]:
    """Add a new dump to what a model has seen, go on with its pre-training, and measure what that was worth.

    Args:
        dump: The new reviews, as they were published.
        increment: What they are added to, and how training goes on.
        finetuning: The new model against the champion (or its base) and a published one, on the first dump's test set.
        promotion: Whether the new model may become the champion of the MLflow registry.
        store: Folder of all results; it must hold the base.
    """
    form = Addition(dump=dump, increment=increment, finetuning=finetuning, promotion=promotion, store=store)
    parameters, graph = prepared(form)
    return going_through(graph, parameters)


def prepared(form: Addition) -> tuple[Parameters, Callable[[Parameters, Maker], Stage]]:
    """What `going_through` needs: the settings, most of them the base's, and the graph."""
    form = asked("base", partial(settled, form))
    base = increments.resolve(form.increment.base, Plan(Store(form.store)))
    return increments.inherited(form, base), added(form)


def added(form: Addition) -> Callable[[Parameters, Maker], Stage]:
    """The graph: base → dump → corpus → vocabulary fit → shards → pre-training → fine-tuning → report."""

    def graph(p: Parameters, make: Maker) -> Stage:
        finetuning_stage.demand_discriminator(p)
        finetuning_stage.demand_splits(p)
        finetuning_stage.demand_published(p)
        base = increments.resolve(form.increment.base, make)
        grown = increments.grown(form, base, make)
        if grown is base:
            return base.encoder
        new, first = grown.rounds[-1], base.rounds[0]
        compared = new.encoder, make.champion, base.encoder
        cells = list(finetuning_stage.cells(p, first.corpus, base.vocabulary, *compared))
        make.side_by_side([(cell.finetuned, cell.evaluated) for cell in cells], p.finetuning.at_once)
        return make(report.stage(form, p.preset, new.dump, new.stages, new.encoder, cells))

    return graph


def settled(form: Addition) -> Addition:
    """With the base by its fingerprint: `last` and `champion` mean others by the time a suspended run goes on."""
    store = Store(form.store)
    memory = store.root / "runs" / str(flow_run.id or "") / "base"
    if flow_run.id and memory.exists():
        base = memory.read_text()
    else:
        champion = registered(store) if form.increment.base == "champion" else ""
        new = dump_stage.stage(Parameters(dump=form.dump), store)
        base = increments.named(form.increment.base, new, store, champion)
        if flow_run.id:
            memory.parent.mkdir(parents=True, exist_ok=True)
            memory.write_text(base)
    run_logger().info("%s is added to %s", " ".join(form.dump.paths), base)
    return form.based_on(base)


def registered(store: Store) -> str:
    """The encoder of the registry's champion, or nothing."""
    return Registry(servers.mlflow_uri(store.root)).having("champion").get("encoder", "")
