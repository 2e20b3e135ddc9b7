"""Packed sequences written out by hand."""

import numpy as np

from amazon_electra.model.pretraining.input.sequences import Rows

CLS, SEP, MASK = 2, 3, 4


def build_rows(sequences: list[list[list[list[int]]]], length: int) -> Rows:
    """Return sequences of documents of sentences of ids, as shards hold them."""
    ids = np.zeros((len(sequences), length), np.uint32)
    documents, sentences = np.zeros(ids.shape, bool), np.zeros(ids.shape, bool)
    lengths = np.zeros(len(sequences), np.int64)
    for i, sequence in enumerate(sequences):
        at = 0
        for document in sequence:
            documents[i, at] = True
            ids[i, at] = CLS
            at += 1
            for sentence in document:
                sentences[i, at] = True
                ids[i, at : at + len(sentence)] = sentence
                at += len(sentence)
            ids[i, at] = SEP
            at += 1
        lengths[i] = at
    return Rows(ids, documents, sentences, lengths)
