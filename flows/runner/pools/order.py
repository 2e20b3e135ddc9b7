"""An order: the stages that a run has a worker of a pool make, as plain values.

It is the form of the deployment that workers of a pool take (flows/run_stage.py). Each stage is
known by its folder. The store tells the worker what a complete stage without a job is, as a dump;
everything else is in the order. No code is sent: a worker is told a name of the table FUNCTIONS
and plain values, which the signature of the function validates, and the function writes the command
line of a job.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Literal, NamedTuple, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from beam_jobs.core.errors import UserError
from beam_jobs.core.settings import Settings
from flows.configuration.form import STORE
from flows.stages import (
    continued_pretraining,
    corpus,
    finetuning,
    model,
    pretraining,
    shards,
    vocabulary,
)
from flows.store.store import ExistingStage, Stage, Store, list_nothing, read_code_version
from flows.studies import study_stages


class StageFunction(NamedTuple):
    """A function, and the module of the job whose command line it writes; empty: it has none."""

    call: Callable[..., Any]
    module: str = ""


FUNCTIONS = {
    "corpus": StageFunction(corpus.format_arguments, "beam_jobs.corpus_job"),
    "vocabulary": StageFunction(vocabulary.format_training_arguments, "model.vocabulary"),
    "vocabulary-fit": StageFunction(vocabulary.format_fit_arguments, "model.vocabulary_fit"),
    "shards": StageFunction(shards.format_arguments, "beam_jobs.shards_job"),
    "pretraining": StageFunction(pretraining.format_arguments, "model.pretrain"),
    "steps": StageFunction(pretraining.list_steps),
    "token-steps": StageFunction(pretraining.list_token_steps),
    "continuation": StageFunction(continued_pretraining.list_continuation),
    "equal-steps": StageFunction(pretraining.count_equal_steps),
    "equal-flops": StageFunction(study_stages.count_equal_flops),
    "equal-tokens": StageFunction(study_stages.count_equal_tokens),
    "finetuning": StageFunction(finetuning.format_finetuning_arguments, "model.finetune"),
    "search": StageFunction(finetuning.format_search_arguments, "model.finetuning.search"),
    "evaluation": StageFunction(finetuning.format_evaluation_arguments, "model.evaluate"),
    "latency": StageFunction(finetuning.format_latency_arguments, "model.evaluation.latency"),
    "model": StageFunction(model.format_model_arguments, "model.export"),
}


def write_call(given: partial[Any], context: Any) -> dict[str, Any]:
    """Return a function with its first values as JSON; ValueError of one that the table does not
    have.
    """
    name = next((name for name, one in FUNCTIONS.items() if one.call is given.func), None)
    if name is None:
        raise ValueError(f"{given.func.__qualname__}: no worker can be told of it")
    hints = get_type_hints(given.func, include_extras=True)  # in the order of the parameters
    told = {
        field: _adapt(hint).dump_python(value, mode="json", context=context)
        for (field, hint), value in zip(hints.items(), given.args, strict=False)
    }
    return {"function": name, "values": told}


def read_call(told: dict[str, Any], context: Any) -> partial[Any]:
    """Return the function with its values; UserError of a name that the table does not have."""
    if told["function"] not in FUNCTIONS:
        raise UserError(f"no function {told['function']}")
    function = FUNCTIONS[told["function"]].call
    values = [
        _adapt(hint).validate_python(told["values"][field], context=context)
        for field, hint in get_type_hints(function, include_extras=True).items()
        if field in told["values"]
    ]
    return partial(function, *values)


@cache
def _adapt(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)


PATH = re.compile(r"[a-z]+(-[a-z]+)*/[0-9a-f]{16}")
"""Of a stage's folder in a store."""


class StageData(BaseModel):
    """A stage (flows/store/store.py) as plain values."""

    model_config = ConfigDict(extra="forbid")

    inputs: dict[str, str]
    """Folders by name."""
    known: bool = False
    """Whether the store tells the rest."""
    version: int = 0
    parameters: dict[str, Any] = {}
    call: dict[str, Any] = {}
    """The function that writes the job's command line, with its values; empty: nobody makes it."""
    result: dict[str, Any] = {}
    title: str = ""
    environment: dict[
        Literal["OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HF_HUB_OFFLINE"],
        str,
    ] = {}
    written_last: Literal["", "metrics.json"] = ""
    scratch: tuple[Literal["checkpoints"], ...] = ()
    shares_process: bool = False
    tracked: bool = False
    shared: bool = False
    on_engine: bool = False
    labels: dict[str, str] = {}


PLAIN = (
    *("version", "parameters", "result", "title", "environment", "written_last", "scratch"),
    *("shares_process", "tracked", "shared", "on_engine", "labels"),
)
"""Fields that a stage and its data have in common."""


class Order(Settings):
    """What a worker of a pool is asked to make."""

    title: str = Field(default="stage", description="What it makes")
    make: list[str] = Field(
        default=[], description="Folders of the stages to make, in order; runs fill this in"
    )
    stages: dict[str, StageData] = Field(
        default={}, description="By folder: those stages, and what they are made of"
    )
    device: str = Field(default="", description="That must be there; empty: any will do")
    code: dict[str, str] = Field(default={}, description="Version of the run that waits")
    tags: dict[str, str] = Field(default={}, description="Of the runs in MLflow")
    mlflow: str = Field(default="", description="Address of the run's MLflow server")
    mlflow_run: str = Field(
        default="", description="Run of MLflow that those of the stages are nested in"
    )
    store: str = STORE


def write_order(chain: Sequence[Stage], store: Store, **more: Any) -> Order:
    """Return the order to make stages one after the other; `more` are fields of it. Of no stage it
    asks whether the host could make some.
    """
    writer = _Writer(store)
    return Order(
        title=chain[0].label if chain else "check",
        make=[writer.add(stage, is_made=True) for stage in chain],
        stages=writer.stages,
        code=read_code_version(),
        store=store.address,
        **more,
    )


class _Writer:
    def __init__(self, store: Store):
        self._store = store
        self.stages: dict[str, StageData] = {}

    def add(self, stage: Stage, is_made: bool = False) -> str:
        """Return the folder of a stage, which is described once."""
        if stage.path in self.stages and not is_made:
            return stage.path
        inputs = {name: self.add(one) for name, one in stage.inputs.items()}
        if not stage.module and self._store.manifest(stage):
            self.stages[stage.path] = StageData(inputs=inputs, known=True)
            return stage.path
        call = self.write(stage.arguments) if is_made else {}
        plain: dict[str, Any] = {name: getattr(stage, name) for name in PLAIN}
        self.stages[stage.path] = StageData(inputs=inputs, call=call, **plain)
        return stage.path

    def write(self, value: Any) -> Any:
        """Return a stage or a function inside of the values of another one."""
        return self.add(value) if isinstance(value, Stage) else write_call(value, self)


def read_order(order: Order, store: Store) -> list[Stage]:
    """Return the stages to make; UserError where this host's code or its store is another one than
    the run's.
    """
    here, there = read_code_version(), order.code
    if {**there, **here} != {**here, **there}:
        raise _describe_difference(order, "the run is of another version")
    reader = _Reader(order, store)
    try:
        return [reader.find(path) for path in order.make]
    except ValidationError as unknown:
        first = unknown.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _describe_difference(order, f"{unknown.title}: {where}: {first['msg']}") from None
    except (KeyError, TypeError, ValueError) as unknown:
        raise _describe_difference(order, " ".join(str(unknown).split())) from None


class _Reader:
    def __init__(self, order: Order, store: Store):
        self._order, self._store = order, store
        self._found: dict[str, Stage] = {}

    def find(self, path: str) -> Stage:
        """Return the stage of a folder."""
        if path not in self._found:
            if not PATH.fullmatch(path):
                raise ValueError(f"{path!r} is no folder of a stage")
            self._found[path] = self._build(path, self._order.stages[path])
        return self._found[path]

    def _build(self, path: str, told: StageData) -> Stage:
        name, _, fingerprint = path.partition("/")
        inputs = {one: self.find(source) for one, source in told.inputs.items()}
        if told.known:
            manifest = self._store.read_manifest(name, fingerprint)
            if manifest is None:
                raise UserError(
                    f"store {self._store.address}: this host does not see {path}, which the run "
                    "wrote there: all need the same bucket, or a folder that they share"
                )
            parameters, result = manifest["parameters"], manifest["result"]
            return ExistingStage(
                name, manifest["version"], parameters, inputs, result=result, known=fingerprint
            )
        call, module = list_nothing, ""
        if told.call:
            call, module = self.read(told.call), FUNCTIONS[told.call["function"]].module
        stage = Stage(
            name,
            inputs=inputs,
            module=module,
            arguments=call,
            **{field: getattr(told, field) for field in PLAIN},
        )
        if stage.path != path:
            raise ValueError(f"{stage.label} is {stage.path} here and {path} there")
        return stage

    def read(self, told: Any) -> Any:
        """Return a stage or a function inside of the values of another one."""
        return self.find(told) if isinstance(told, str) else read_call(told, self)


def _describe_difference(order: Order, what: str) -> UserError:
    """Return the error of a host with other code than the run's."""
    here, there = (" ".join(code.values()) for code in (read_code_version(), order.code))
    return UserError(
        f"this worker's code ({here}) is not the run's ({there}): {what}; install the same version"
    )
