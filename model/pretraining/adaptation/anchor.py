"""Keeps the loaded trunk beside the one that learns.

What is written is an average of both (WiSE-FT, Wortsman et al. 2022, arXiv 2109.01903), or the
loaded one where a probe finds that training did harm.

The probe measures what an encoder knows of polarity: logistic regression on the mean states of a
labelled review in the upper half of the layers (Alain & Bengio 2016, arXiv 1610.01644). The last
layer alone is a poor witness: on 1,000 dev reviews a published MiniLM of 6 layers has 70.4% there,
77.2% in the fourth and 77.9% in the upper four together. Nothing in it is random, so two
measurements differ by the encoder alone. It learns from reviews of the corpus's train split and is
measured on its dev split; the test split is never read.
"""

import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.model.config import AdaptationConfig
from amazon_electra.model.device import Device
from amazon_electra.model.finetuning.examples import Sampling, Split
from amazon_electra.model.finetuning.features import Feature, Featurizer, cut_prediction_batches
from amazon_electra.model.finetuning.tasks.corpus import POLARITY, read_reviews
from amazon_electra.model.pretraining.network.masked_prediction import PretrainingModel

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

ACCURACY = "probe_accuracy"
"""Name of the measure in the log."""
Judged = NDArray[np.bool_]
"""Which dev reviews a probe judges rightly, [reviews]."""
REVIEWS_AT_ONCE = 32
LENGTH_STEP = 16  # tokens: padded lengths are multiples, so that a device compiles few shapes
MAX_TOKENS = 64  # tokens of a review: with 128 a probe costs 1.6 times as much
STRENGTH = 0.001  # C of the logistic regression; 0.0003 to 0.003 gave the same to half a point


@dataclass(frozen=True)
class Reviews:
    """Tokenized reviews with their labels, 0 negative and 1 positive."""

    features: list[Feature]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class Probe:
    """The labelled reviews of a corpus that an encoder is measured on."""

    train: Reviews
    dev: Reviews

    @classmethod
    def open(
        cls, corpus: Path, vocabulary: Path, max_length: int, config: AdaptationConfig
    ) -> "Probe":
        """Read the reviews, the same ones for every run; longer ones are cut to MAX_TOKENS, at
        most `max_length`.

        Raise UserError where the corpus has too few labels.
        """
        tokenizer = Tokenizer.from_file(str(vocabulary / "tokenizer.json"))
        tokenizer.no_padding()
        featurizer = Featurizer(tokenizer, "classification", min(max_length, MAX_TOKENS))
        return cls(
            _read_reviews(corpus, "train", config.probe_train, featurizer),
            _read_reviews(corpus, "dev", config.probe_dev, featurizer),
        )

    def compute_fingerprint(self) -> str:
        """Return a hash of the token ids and labels."""
        digest = hashlib.sha256()
        for reviews in (self.train, self.dev):
            ids = [[list(map(int, row)) for row in feature.ids] for feature in reviews.features]
            digest.update(json.dumps([ids, reviews.labels.tolist()]).encode())
        return digest.hexdigest()

    def __call__(self, model: PretrainingModel, device: Device) -> Judged:
        """Return which dev reviews the probe judges rightly, [reviews]."""
        is_training = model.training
        model.eval()
        train, dev = (encode_reviews(model, device, part) for part in (self.train, self.dev))
        model.train(is_training)
        classifier = build_classifier().fit(train, self.train.labels)
        return np.asarray(classifier.predict(dev) == self.dev.labels)


def build_classifier() -> "Pipeline":
    """Return what learns polarity from mean states."""
    from sklearn.linear_model import LogisticRegression  # 1.8 CPU seconds, for who probes
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(C=STRENGTH, max_iter=1000))


def _read_reviews(corpus: Path, split: Split, count: int, featurizer: Featurizer) -> Reviews:
    sampling = Sampling(count, seed=0, balanced=True)
    try:
        examples = read_reviews(corpus, split, sampling, Counter(), "stars", POLARITY)
    except UserError:
        raise UserError(
            "no corpus-*.parquet of this version there; give a folder made by beam_jobs.corpus_job",
            "probe",
            corpus,
        ) from None
    labels = np.array([example.label for example in examples], dtype=np.int64)
    if len(set(labels.tolist())) < 2:
        raise UserError(
            f"its {split} split lacks reviews with 1–2 or with 4–5 stars; give a corpus with both",
            "probe",
            corpus,
        )
    return Reviews(featurizer(examples), labels)


@torch.no_grad()
def encode_reviews(
    model: PretrainingModel, device: Device, reviews: Reviews
) -> NDArray[np.float32]:
    """Return the mean over each review's tokens of the states of the upper half of the layers,
    [reviews, layers · hidden].
    """
    batches = list(cut_prediction_batches(reviews.features, REVIEWS_AT_ONCE))
    rows = []
    for places in batches:
        batch = device.put_whole(_pad_reviews([reviews.features[i] for i in places]))
        layers = model.encode(batch["input_ids"], batch)
        real = batch["documents"].bool().float()[:, :, None]
        upper = layers[math.ceil(len(layers) / 2) - 1 :]
        means = [(states.float() * real).sum(dim=1) / real.sum(dim=1) for states in upper]
        rows.append(torch.cat(means, dim=1).cpu())
    return torch.cat(rows).numpy()[np.argsort(np.concatenate(batches))]


def _pad_reviews(features: list[Feature]) -> dict[str, NDArray[Any]]:
    """Return one review a row, [reviews, length]; 0 in `documents` is padding."""
    longest = max(feature.length for feature in features)
    length = -(-longest // LENGTH_STEP) * LENGTH_STEP
    ids = np.zeros((len(features), length), dtype=np.int64)
    documents = np.zeros_like(ids)
    for row, feature in enumerate(features):
        ids[row, : feature.length] = feature.ids[0]
        documents[row, : feature.length] = 1
    positions = np.broadcast_to(np.arange(length), ids.shape) * documents
    return {"input_ids": ids, "documents": documents, "positions": positions}


WORSE = 2.0
"""Standard errors by which the trained encoder must be worse than the loaded one for that one to be
written.
"""


class Anchor:
    """A copy of a model's trunk at the moment it is made."""

    def __init__(self, model: PretrainingModel) -> None:
        trunk = model.list_trunk_names()
        self._trained = [tensor for name, tensor in model.named_parameters() if name in trunk]
        self._loaded = [parameter.detach().clone() for parameter in self._trained]

    @torch.no_grad()
    def average(self, share: float) -> None:
        """Replace the trunk's weights by `share` of the loaded ones and the rest of their own."""
        for trained, loaded in zip(self._trained, self._loaded, strict=True):
            trained.lerp_(loaded, share)

    @contextmanager
    def averaged(self, share: float) -> Iterator[None]:
        """Let the trunk be averaged inside the block, and bit for bit what it was after it."""
        own = [parameter.detach().clone() for parameter in self._trained]
        self.average(share)
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, before in zip(self._trained, own, strict=True):
                    parameter.copy_(before)

    def settle(
        self,
        model: PretrainingModel,
        device: Device,
        adaptation: AdaptationConfig,
        probe: Probe | None,
        step: int,
    ) -> dict[str, Any]:
        """Put the weights that are to be written after `step` into the model: the average, or the
        loaded trunk where the probe finds the average worse. Return what result.json says of it.
        """
        self.average(adaptation.origin_average)
        if probe is None or not device.is_needed:
            return {}
        trained = probe(model, device)
        with self.averaged(1.0):
            loaded = probe(model, device)
        is_refused = is_worse(trained, loaded) and not adaptation.write_last
        if is_refused:
            self.average(1.0)
        if device.is_rank0:
            print(
                f"probe on {len(trained):,} dev reviews: the loaded encoder {loaded.mean():.1%}, "
                f"the trained one {trained.mean():.1%}"
                + (
                    f", worse by more than {WORSE:g} standard errors: the loaded weights are "
                    "written as they were. Try a lower learning_rate or trunk_learning_rate, or "
                    "more text"
                    if is_refused
                    else ", which is written"
                ),
                file=sys.stderr,
            )
        return {
            "probe_origin_accuracy": float(loaded.mean()),
            "probe_last_accuracy": float(trained.mean()),
            "written_step": 0 if is_refused else step,
        }


def is_worse(trained: Judged, loaded: Judged) -> bool:
    """Return whether an encoder is worse than the loaded one by more than chance explains.

    Both are judged on the same reviews, so that the error is that of their difference: where they
    agree on most reviews it is a fraction of that of either accuracy.
    """
    differences = loaded.astype(np.float64) - trained
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return float(differences.mean()) > WORSE * error
