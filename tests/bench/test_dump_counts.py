"""The table of counts and the search for leaks print what they find; a planted leak is found."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.beam_jobs.dumps import review, run_job, text_of, write_lines

COMMAND = Path(__file__).with_name("dump_counts.py")


def printed(*arguments: object) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, COMMAND, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, done.stdout


def test_a_row_for_each_file(tmp_path):
    dump = write_lines(
        tmp_path / "a.json", [*[review(i) for i in range(10)], review(1), "{broken", review(3, "")]
    )
    (tmp_path / "b.txt").write_text("nothing known\n")
    code, table = printed(dump, tmp_path / "b.txt")
    assert code == 0
    first, second = table.splitlines()[2:]
    assert (
        "a.json | json_lines | 13 | 10 | broken JSON 1, duplicate 1, empty text 1 "
        "| 2 · 2 · 2 · 2 · 2 · 0 | – |" in first
    )
    assert "refused: " in second


def test_leaks_are_found(tmp_path):
    dump = write_lines(tmp_path / "a.json", [review(i, text_of(i, 8)) for i in range(40)])
    (tmp_path / "exact.txt").write_text(text_of(3, 8) + "\n")
    (tmp_path / "near.txt").write_text(text_of(4, 8) + " And much more than that.\n")
    evaluation = [tmp_path / "exact.txt", tmp_path / "near.txt"]
    run_job(tmp_path / "clean", "--input", dump, "--withhold", *evaluation)
    code, said = printed("--leaks", tmp_path / "clean", "--withhold", *evaluation)
    assert code == 0, said
    run_job(tmp_path / "leaking", "--input", dump)
    [path] = (tmp_path / "leaking").glob("*.parquet")
    table = pq.read_table(path)
    sides = ["train" if side != "train" else "test" for side in table["split"].to_pylist()[:1]]
    other = table.slice(0, 1).set_column(
        table.schema.get_field_index("split"), "split", pa.array(sides)
    )
    pq.write_table(other, path.with_name("corpus-9999-00000.parquet"))
    code, said = printed("--leaks", tmp_path / "leaking", "--withhold", *evaluation)
    assert code == 1
    assert "leaks: texts on two sides: 1\n" in said
    assert "corpus, exact: 1\n" in said
    assert "corpus, near: 1\n" in said
