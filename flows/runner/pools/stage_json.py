"""Stages as JSON: for a host that makes them, but does not build their graph.

No code is sent: what builds a command line is named, and found in the package that the other host
has installed. Only functions and classes of this project can be named. Where the store lies on
this machine is left out, for it lies elsewhere on the other one.
"""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from beam_jobs.job.errors import UserError
from flows.runner.store import Stage, list_nothing

PACKAGES = ["flows"]
"""Whose functions and classes may be named."""
KIND = "kind"


def encode_stages(stages: list[Stage], root: Path) -> dict[str, Any]:
    """Return stages, and all that they are made of, as JSON; each is written once."""
    encoder = _Encoder(root)
    numbers = [encoder.add_stage(stage) for stage in stages]
    return {"stages": encoder.stages, "named": numbers}


def decode_stages(told: Mapping[str, Any], root: Path) -> list[Stage]:
    """Return the stages of `encode_stages`, for a store whose part on this machine is `root`."""
    decoder = _Decoder(root)
    for fields in told["stages"]:
        stage = decoder.decode(fields)
        decoder.stages.append(stage)
    return [decoder.stages[number] for number in told["named"]]


class _Encoder:
    def __init__(self, root: Path):
        self._root, self._numbers = f"{root}/", dict[int, int]()
        self.stages: list[dict[str, Any]] = []

    def add_stage(self, stage: Stage) -> int:
        """Return the number of a stage; those that it is made of have lower ones."""
        self.stages.append(self._encode_object(stage))
        return len(self.stages) - 1

    def _add_input(self, stage: Stage) -> int:
        """Return the number of a stage that is only read: nobody makes it there."""
        if id(stage) not in self._numbers:
            made = dataclasses.replace(stage, arguments=list_nothing)
            self._numbers[id(stage)] = self.add_stage(made)
        return self._numbers[id(stage)]

    def encode(self, value: Any) -> Any:
        """Return any value that a stage holds as JSON."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return self._encode_text(value)
        if isinstance(value, list):
            return [self.encode(one) for one in value]
        if isinstance(value, tuple):
            return {KIND: "tuple", "items": [self.encode(one) for one in value]}
        if isinstance(value, Mapping):
            items = [[name, self.encode(one)] for name, one in value.items()]
            return {KIND: "mapping", "items": items}
        if isinstance(value, Path):
            return {KIND: "path", "path": self._encode_text(str(value))}
        if isinstance(value, Stage):
            return {KIND: "stage", "number": self._add_input(value)}
        if isinstance(value, partial):
            return {
                KIND: "call",
                "function": self.encode(value.func),
                "arguments": [self.encode(one) for one in value.args],
                "keywords": {name: self.encode(one) for name, one in value.keywords.items()},
            }
        if isinstance(value, BaseModel) or dataclasses.is_dataclass(value):
            return self._encode_object(value)
        return {KIND: "function", "name": name_object(value)}

    def _encode_text(self, text: str) -> Any:
        if text.startswith(self._root):
            return {KIND: "below_store", "path": text.removeprefix(self._root)}
        return text

    def _encode_object(self, value: Any) -> dict[str, Any]:
        names = (
            list(type(value).model_fields)
            if isinstance(value, BaseModel)
            else [field.name for field in dataclasses.fields(value)]
        )
        fields = {name: self.encode(getattr(value, name)) for name in names}
        return {KIND: "object", "class": name_object(type(value)), "fields": fields}


class _Decoder:
    def __init__(self, root: Path):
        self._root = root
        self.stages: list[Any] = []

    def decode(self, told: Any) -> Any:
        """Return the value that was encoded."""
        if isinstance(told, list):
            return [self.decode(one) for one in told]
        if not isinstance(told, dict):
            return told
        decode: Callable[[dict[str, Any]], Any] = {
            "tuple": lambda told: tuple(map(self.decode, told["items"])),
            "mapping": lambda told: {name: self.decode(one) for name, one in told["items"]},
            "path": lambda told: Path(self.decode(told["path"])),
            "below_store": lambda told: str(self._root / told["path"]),
            "stage": lambda told: self.stages[told["number"]],
            "call": self._decode_call,
            "object": lambda told: find_object(told["class"])(**self._decode_fields(told)),
            "function": lambda told: find_object(told["name"]),
        }[told[KIND]]
        return decode(told)

    def _decode_call(self, told: dict[str, Any]) -> Any:
        keywords = {name: self.decode(one) for name, one in told["keywords"].items()}
        return partial(self.decode(told["function"]), *self.decode(told["arguments"]), **keywords)

    def _decode_fields(self, told: dict[str, Any]) -> dict[str, Any]:
        return {name: self.decode(one) for name, one in told["fields"].items()}


def name_object(found: Any) -> str:
    """Return `module:name` of a function or class of this project, by which another host finds
    it.
    """
    name = f"{found.__module__}:{found.__qualname__}"
    assert is_ours(name), f"{name}: nobody can be told of it"
    assert find_object(name) is found
    return name


def find_object(name: str) -> Any:
    """Return the function or class of a name; UserError where this code has none."""
    module, _, attribute = name.partition(":")
    if not is_ours(name):
        raise UserError(f"{name} is none of this project's functions")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        raise UserError(f"it has no {name}") from None


def is_ours(name: str) -> bool:
    """Return whether `module:name` lies in one of the packages that may be named."""
    return name.split(":")[0].split(".")[0] in PACKAGES and "<" not in name
