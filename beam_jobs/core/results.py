"""What make_corpus and make_shards return: the fields of the files that they write."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self


@dataclass(frozen=True)
class Result:
    """The result of a job. `content` is all of it, as the job's file has it in JSON."""

    content: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Return the result with this content, whose entries are also the fields of their names."""
        names = {one.name for one in fields(cls)}
        return cls(dict(content), **{n: v for n, v in content.items() if n in names})


@dataclass(frozen=True)
class CorpusResult(Result):
    """What make_corpus made: corpus.json."""

    read: int = 0  # reviews of the dump: `kept` and all that are `dropped`
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)  # by reason
    splits: dict[str, int] = field(default_factory=dict)  # reviews of pretrain, train, dev and test
    stars: dict[str, int] = field(default_factory=dict)  # reviews by split and stars
    labels: dict[str, Any] = field(default_factory=dict)  # classes of each, with their reviews
    warnings: list[str] = field(default_factory=list)
    staged: str = ""  # the engine, where the job was only staged; then nothing is counted


@dataclass(frozen=True)
class ShardsResult(Result):
    """What make_shards made: shards.json."""

    sequences: int = 0
    tokens: int = 0
    fill: float = 0.0  # share of the positions that hold a token
    shards: int = 0  # files
    max_length: int = 0
    vocabulary_size: int = 0
    staged: str = ""  # the engine, where the job was only staged; then nothing is counted
