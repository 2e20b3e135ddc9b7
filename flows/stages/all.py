"""Every stage of the project: importing this lets a request name any of them."""

from amazon_electra.flows.stages import (  # noqa: F401
    comparison,
    corpus,
    dump,
    evaluation,
    external,
    finetuning,
    joined_corpus,
    latency,
    model,
    origin,
    pretraining,
    report,
    scores,
    search,
    shards,
    vocabulary,
    vocabulary_fit,
)
