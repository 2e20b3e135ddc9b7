"""Write a study of one task, and read what the commands of its stages are given."""

SPACE = {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "batch": [8, 16]}


def content_of(made, arms=(), **changes):
    return {
        "title": "T",
        "question": "Q?",
        "seeds": [0],
        "arms": list(arms) or [{"name": "one", "encoder": str(made / "electra")}],
        "tasks": [{"task": "polarity", "data": str(made / "corpus")}],
    } | changes


def option(arguments, name):
    return arguments[arguments.index(name) + 1]
