"""What the report says of texts that an encoder may have seen before it is tested on them."""

import pytest

from tests.model.report.evaluations import render, write_cells

TASKS = ["polarity", "stars"]
OURS = {"name": "ours", "data_known": True, "held_out": TASKS}
BEGAN = {"name": "adapted", "origin": "f00", "data_known": True, "held_out": TASKS}
AS_IT_IS = {"name": "published, as it is", "origin": "f00", "data_known": False}
MINI = {"f00": {"name": "mini", "training_data": "s2orc, eli5"}}


@pytest.mark.parametrize(
    ("arms", "origins", "warned"),
    [
        ([OURS, {"name": "random"}], {}, []),
        ([OURS, {"name": "found", "data_known": False}], {}, [("found",)]),
        ([BEGAN, AS_IT_IS], MINI, [("mini", "“s2orc, eli5”", "adapted; published, as it is")]),
        ([BEGAN], {"f00": {"name": "mini"}}, [("mini", "unknown", "adapted")]),
        ([OURS | {"held_out": ["stars"]}], {}, [("polarity", "ours")]),
    ],
)
def test_texts_that_may_have_been_seen_are_warned_of(tmp_path, arms, origins, warned):
    cells = [write_cells(tmp_path, {"random": 0.8}, seeds=[0], task=task)[0] for task in TASKS]
    _, text = render(tmp_path, cells, arms=arms, origins=origins)
    lines = [line for line in text.splitlines() if line.startswith("> **Warning:** ")]
    assert len(lines) == len(warned)
    for line, parts in zip(lines, warned, strict=True):
        assert all(part in line for part in parts)
    assert ("No test text" in text) == any(one.get("held_out") == TASKS for one in arms)
