"""Splits by product, by user and by time."""

import collections
import datetime

import pytest

from tests.beam_jobs.dumps import review, rows_of, run_job, text_of, write_lines
from tests.refusals import refuses

DAY = 86_400


def sides_by_number(folder):
    """The side of each review, by the number in its first sentence."""
    return {int(row["sentences"][0].split()[1]): row["split"] for row in rows_of(folder)}


@pytest.mark.parametrize(("by", "column"), [("product", "asin"), ("user", "reviewerID")])
def test_a_product_or_user_is_on_one_side_alone(tmp_path, by, column):
    records = [review(i, **{column: f"K{i % 97}"}) for i in range(1000)]
    records += [review(1000 + i, **{column: None}) for i in range(50)]
    dump = write_lines(tmp_path / "dump.json", records)
    result = run_job(tmp_path / "corpus", "--input", dump, "--split-by", by)
    sides = sides_by_number(tmp_path / "corpus")
    of_key = collections.defaultdict(set)
    for number in range(1000):
        of_key[number % 97].add(sides[number])
    assert all(len(found) == 1 for found in of_key.values())
    assert set(sides.values()) == {"pretrain", "train", "dev", "test"}
    assert len({sides[number] for number in range(1000, 1050)}) > 1, "their text decides"
    assert (result["split_by"]["by"], result["split_by"]["without"]) == (by, 50)


def test_the_latest_reviews_are_test_and_those_before_them_dev(tmp_path):
    records = [review(i, unixReviewTime=(20_000 + i * 7 % 1000) * DAY + 5) for i in range(1000)]
    records += [review(1000 + i, unixReviewTime="03/04/2015") for i in range(9)]
    dump = write_lines(tmp_path / "dump.json", records)
    result = run_job(tmp_path / "corpus", "--input", dump, "--split-by", "time")
    sides = sides_by_number(tmp_path / "corpus")
    for number in range(1000):
        day = number * 7 % 1000
        late = "test" if day >= 920 else "dev" if day >= 880 else ""
        assert (sides[number] == late) if late else sides[number] in ("pretrain", "train")
    assert {sides[number] for number in range(1000, 1009)} <= {"pretrain", "train"}
    assert result["split_by"]["without"] == 9
    # nothing of a review's side depends on how the dump is cut
    halves = [write_lines(tmp_path / f"{i}.json", records[i::2]) for i in range(2)]
    run_job(tmp_path / "halves", "--input", *halves, "--split-by", "time")
    assert sides_by_number(tmp_path / "halves") == sides


def write_shop(path, form, days):
    start = datetime.date(2025, 1, 1)
    dates = [(start + datetime.timedelta(i * 7 % days)).strftime(form) for i in range(days)]
    lines = [f"{date},{text_of(i)!r},5\n" for i, date in enumerate(dates)]
    path.write_text("date,review,stars\n" + "".join(lines))
    return path


def test_an_open_notation_ends_the_job_and_names_the_option(tmp_path):
    dump = write_shop(tmp_path / "shop.csv", "%d/01/%Y", 12)
    with refuses("shop.csv", "date", "dates"):
        run_job(tmp_path / "a", "--input", dump, "--split-by", "time")
    run_job(tmp_path / "b", "--input", dump, "--split-by", "time", "--dates", "DMY")
    sides = sides_by_number(tmp_path / "b")
    assert [i * 7 % 12 for i, side in sides.items() if side == "test"] == [11]


def test_what_cannot_be_split_by_is_told_in_one_line(tmp_path):
    plain = {"reviewText": "Good.", "overall": 5.0}
    lines = write_lines(tmp_path / "plain.json", [plain])
    for by, field in [("product", "item_id"), ("user", "user_id"), ("time", "timestamp")]:
        with refuses("split_by", f"{by}", "overall, reviewText", f"{field}="):
            run_job(tmp_path / by, "--input", lines, "--split-by", by)
    undated = write_lines(tmp_path / "undated.json", [review(1, unixReviewTime="soon")])
    with refuses("undated.json", "unixReviewTime"):
        run_job(tmp_path / "undated", "--input", undated, "--split-by", "time")
    same_day = write_lines(tmp_path / "day.json", [review(i) for i in range(9)])
    with refuses("split_by"):
        run_job(tmp_path / "day", "--input", same_day, "--split-by", "time")
