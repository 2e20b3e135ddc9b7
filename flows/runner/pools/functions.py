"""The functions that a worker of a pool may be told to call: they write the command lines of jobs.

A worker is told a name of this table and plain values, which are validated by the function's
signature. No other code can be named.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple, get_type_hints

from pydantic import TypeAdapter

from beam_jobs.core.errors import UserError
from flows.stages import continued_pretraining, corpus, finetuning, pretraining, shards, vocabulary
from flows.studies import pretraining_budget


class StageFunction(NamedTuple):
    """A function, and the module of the job whose command line it writes; empty: it has none."""

    call: Callable[..., Any]
    module: str = ""


FUNCTIONS = {
    "corpus": StageFunction(corpus.format_arguments, "beam_jobs.corpus_job"),
    "vocabulary": StageFunction(vocabulary.format_training_arguments, "model.vocabulary"),
    "vocabulary-fit": StageFunction(vocabulary.format_fit_arguments, "model.vocabulary_fit"),
    "shards": StageFunction(shards.format_arguments, "beam_jobs.shards_job"),
    "dev-shards": StageFunction(shards.format_dev_arguments, "beam_jobs.shards_job"),
    "general-shards": StageFunction(shards.format_general_arguments, "beam_jobs.shards_job"),
    "pretraining": StageFunction(pretraining.format_arguments, "model.pretrain"),
    "steps": StageFunction(pretraining.list_steps),
    "continuation": StageFunction(continued_pretraining.list_continuation),
    "equal-steps": StageFunction(pretraining.count_equal_steps),
    "equal-flops": StageFunction(pretraining_budget.count_equal_flops),
    "equal-tokens": StageFunction(pretraining_budget.count_equal_tokens),
    "finetuning": StageFunction(finetuning.format_finetuning_arguments, "model.finetune"),
    "search": StageFunction(finetuning.format_search_arguments, "model.finetuning.search"),
    "evaluation": StageFunction(finetuning.format_evaluation_arguments, "model.evaluate"),
    "latency": StageFunction(finetuning.format_latency_arguments, "model.evaluation.latency"),
}


def write_call(given: partial[Any], context: Any) -> dict[str, Any]:
    """Return a function with its values as JSON; ValueError of one that the table does not have."""
    name = next((name for name, one in FUNCTIONS.items() if one.call is given.func), None)
    if name is None:
        raise ValueError(f"{given.func.__qualname__}: no worker can be told of it")
    hints = dict(_list_hints(given.func))
    values = dict(zip(hints, given.args, strict=False)) | given.keywords
    told = {
        field: _adapt(hints[field]).dump_python(value, mode="json", context=context)
        for field, value in values.items()
    }
    return {"function": name, "values": told, "named": sorted(given.keywords)}


def read_call(told: dict[str, Any], context: Any) -> partial[Any]:
    """Return the function with its values; UserError of a name that the table does not have."""
    if told["function"] not in FUNCTIONS:
        raise UserError(f"no function {told['function']}")
    function = FUNCTIONS[told["function"]].call
    values = {
        field: _adapt(hint).validate_python(told["values"][field], context=context)
        for field, hint in _list_hints(function)
        if field in told["values"]
    }
    named = {field: values.pop(field) for field in told["named"]}
    return partial(function, *values.values(), **named)


def _list_hints(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield each parameter's name and type, in order."""
    hints = get_type_hints(function, include_extras=True)
    for name in inspect.signature(function).parameters:
        yield name, hints[name]


@cache
def _adapt(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)
