"""The version of every stage, a part of its fingerprint.

Whoever changes a job so that it makes something else raises its stage's version: the code itself is
not part of the fingerprint, since most changes of it change no byte of what it makes.
"""

VERSIONS = {
    "dump": 1,
    "external": 1,
    "origin": 3,
    "corpus": 25,
    "vocabulary": 2,
    "vocabulary-fit": 2,
    "shards": 5,
    "dev-shards": 1,
    "pretraining": 10,
    "search": 9,
    "finetuning": 15,
    "evaluation": 4,
    "latency": 3,
    "model": 4,
    "report": 12,
    "study": 15,
    "scores": 8,
}
