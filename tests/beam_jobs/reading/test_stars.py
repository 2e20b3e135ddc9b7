"""The scale of a column of stars is found from all its values, or asked for."""

import re
import shlex
from decimal import Decimal

import numpy as np
import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.corpus_job import make_corpus
from amazon_electra.beam_jobs.labels import stars
from tests.beam_jobs.dumps import review, run_job, write_lines
from tests.refusals import refuses
from tests.words import read_arguments

RULES = [
    ("1-5", [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]),
    ("0.5-5", [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5], [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]),
    ("0-4", [0, 1, 2, 3, 4], [1, 2, 3, 4, 5]),
    ("0-1", [0, 0.25, 0.5, 0.75, 1], [1, 2, 3, 4, 5]),
    ("1-10", list(range(1, 11)), [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]),
    ("0-10", list(range(11)), [1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5]),
    ("2-10", ["2", "4", "6", "8", "10"], [1, 2, 3, 4, 5]),
    ("20-100", ["20%", "40%", "60 %", "80%", "100%"], [1, 2, 3, 4, 5]),
    ("binary", [0, 1, True, "false"], [2, 4, 4, 2]),
    ("binary", ["-1", "1"], [2, 4]),  # as Steam's recommendations are
]


def decide(values, given=""):
    counts = {}
    for value in values:
        counts[stars.parse_rating(value)] = counts.get(stars.parse_rating(value), 0) + 1
    return stars.decide_scale(counts, "column rating", given)


@pytest.mark.parametrize(("name", "values", "expected"), RULES)
def test_a_scale_is_found_and_mapped_to_the_nearest_star(name, values, expected):
    scale = decide(values)
    assert scale.name == name
    ratings = np.array([stars.parse_rating(value)[0] for value in values])
    assert scale.map_ratings(ratings).tolist() == expected
    assert scale.map_ratings(np.array([np.nan, -2, 1e5])).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("values", "choices"),
    [
        *((range(6), ["0-5", "1-5"]), (range(4), ["0-3", "1-5"])),
        *(([2, 3, 7, 10], ["0-10", "1-10"]), ([1, 2] * 60, ["1-2", "1-5"])),
        *(([1, 7], ["1-7", "7-1"]), (range(1, 7), ["1-6", "6-1", "1-5"])),
        *((range(1, 8), ["1-7", "7-1"]), (range(8), ["0-7", "7-0"])),
        (["1 - Excellent", "2 - Good", "5 - Bad"], ["5-1"]),
        *((["1: sehr gut", "6: ungenügend"], ["6-1"]), ([-2, -1, 0, 1, 2], ["-2-2"])),
    ],
)
def test_what_the_values_leave_open_is_asked_for(values, choices):
    with pytest.raises(UserError) as caught:
        decide(values)
    shown = re.findall("`(.*?)`", str(caught.value))
    words = [shlex.split(one) for one in shown if "stars-scale" in one]
    paths = ["--input", "dump.csv", "--output", "corpus"]
    typed = [read_arguments(make_corpus, [*one, *paths])["config"].stars_scale for one in words]
    assert {*choices} <= {*typed}
    assert all(decide(values, choice).name == choice for choice in typed)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("values", [["4", "8/10"], ["4/5", "8/10"], ["4", "80%"]])
def test_two_scales_in_a_column_are_refused(values):
    with refuses("column rating"):
        decide(values)


def test_minus_one_beside_stars_is_no_rating():
    for values, name in (([-1, 1, 2, 3, 4, 5], "1-5"), ([-1, *range(1, 11)], "1-10")):
        scale = decide(values)
        assert scale.name == name
        assert scale.map_ratings(np.array([-1.0])).tolist() == [0]


def test_a_few_unrated_reviews_leave_five_stars_certain():
    scale = decide([1, 2, 3, 4, 5] * 100 + [0, 0])
    assert scale == stars.FIVE
    assert scale.map_ratings(np.array([0.0, 5.0])).tolist() == [0, 5]


@pytest.mark.parametrize(
    ("value", "rating"),
    [
        *(("4/5", (4, 5)), ("8 / 10", (8, 10)), ("5.0 out of 5 stars", (5, 5))),
        *(("80%", (80, 100)), ("4,5", (4.5, 0)), ("★★★★☆", (4, 5)), ("⭐⭐⭐", (3, 5))),
        *(("5 Sterne", (5, 0)), ("Rated 4 out of 5", (4, 5)), ("Rating: 4", (4, 0))),
        *(("4-star", (4, 0)), ("4 stars out of 5", (4, 5)), ("4★", (4, 0)), ("FOUR", (4, 0))),
        *(("5 - Excellent", (5, 0)), ("2 – Bad", (2, 0)), ("3: so so", (3, 0))),
        *(("1 - Very good", (1, stars.REVERSED)), ("1 - Very bad", (1, 0)), ("🙂", (4, 5))),
        *(("😡", (1, 5)), ("❤️", (5, 5)), ("👍🏽", (stars.YES, 0)), ("👎", (stars.NO, 0))),
        *(("B", None), ("good", None), ("3 - 4", None), ("2 - 1/2", None)),
        *(("Four stars", (4, 0)), ("4,0 van 5 sterren", (4, 5)), ("5つ星のうち4.0", (4, 5))),
        *(
            ("4.0 颗星，最多 5 颗星", (4, 5)),
            ("-1", (-1, 0)),
            ("5-", None),
            ("one star too many", None),
        ),
        *((Decimal("3.0"), (3, 0)), ("", None), ("5 apples", None), ("2023-01-05", None)),
        *((Decimal("NaN"), None), (float("inf"), None), (10**400, None)),
    ],
)
def test_what_a_value_says(value, rating):
    assert stars.parse_rating(value) == rating


def test_a_dump_of_two_scales_is_refused(tmp_path):
    write_lines(tmp_path / "a.json", [review(i, overall=1 + i % 10) for i in range(200)])
    write_lines(tmp_path / "b.json", [review(1000 + i) for i in range(200)])
    with refuses("b.json"):
        run_job(tmp_path / "mixed", "--input", tmp_path / "a.json", tmp_path / "b.json")


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("6-1", [1, 2, 3, 4, 5, 6], [5, 4, 3, 3, 2, 1]),
        ("5-1", [1, 2, 3, 4, 5, 6], [5, 4, 3, 2, 1, 0]),
        ("1-7", [1, 2, 3, 4, 5, 6, 7], [1, 2, 2, 3, 4, 4, 5]),
        ("nps", [0, 6, 7, 8, 9, 10, 11], [1, 1, 3, 3, 5, 5, 0]),
    ],
)
def test_scales_that_only_a_user_can_name(name, values, expected):
    stars.check_scale(name)
    assert stars.Scale(name).map_ratings(np.array(values, float)).tolist() == expected


@pytest.mark.parametrize("name", ["5-5", "abc", "1-", "NPS"])
def test_what_is_no_scale(name):
    with pytest.raises(UserError):
        stars.check_scale(name)


def test_a_part_of_an_amazon_release_without_five_stars_is_not_asked_for(tmp_path):
    dump = write_lines(tmp_path / "d.json", [review(i, overall=1 + i % 2) for i in range(300)])
    assert run_job(tmp_path / "a", "--input", dump)["stars_scale"] == "1-5"
    own = [{"text": f"Text {i}.", "rating": 1 + i % 2} for i in range(300)]
    with pytest.raises(UserError):
        run_job(tmp_path / "b", "--input", write_lines(tmp_path / "o.json", own))


def test_a_run_says_what_becomes_of_answers_from_zero_to_ten(tmp_path):
    dump = write_lines(tmp_path / "d.json", [review(i, overall=i % 11) for i in range(300)])
    [line] = run_job(tmp_path / "a", "--input", dump)["warnings"]
    assert "0–3 negative, 4–6 neither, 7–10 positive" in line
    assert "`--stars-scale nps`" in line
    result = run_job(tmp_path / "b", "--input", dump, "--stars-scale", "nps")
    assert result["stars_scale"] == "nps"
    assert "warnings" not in result
    assert {name.partition(".")[2] for name in result["stars"]} == {"1", "3", "5"}
