"""New and old sequences in one stream: the share, the order, any place continues, nothing left out
or twice.
"""

from fractions import Fraction
from itertools import islice

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.pretraining.input.mixture import Mixture, Replay, open_replay, parse_ratio
from amazon_electra.model.pretraining.input.sequences import Shards, Stream
from amazon_electra.model.pretraining.loop import EXIT_TERMINATED
from tests.model.pretraining.input.test_sequences import rows_as_tuples
from tests.model.pretraining.runs import SHAPE, pretrain
from tests.model.pretraining.termination import terminated_at
from tests.model.synthetic_shards import write_shards

SETTINGS = SHAPE | {"batch": 16, "dropout": 0.1, "log_every": 5, "checkpoint_every": 10}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    at = tmp_path_factory.mktemp("shards")
    return (
        write_shards(at / "new", sequences=120, shards=2, seed=1),
        write_shards(at / "old", sequences=150, shards=1, seed=2),
        write_shards(at / "older", sequences=50, shards=1, seed=3),
    )


@pytest.fixture(scope="module")
def opened(folders):
    new, *earlier = folders
    return Shards.open(new), open_replay(Shards.open(new), earlier, "0.5").shards


def mixture(opened, ratio="0.5", seed=0, window=64):
    new, old = opened
    return Mixture(Stream(new, seed, window), Stream(old, seed + 1, window), parse_ratio(ratio))


def take(stream, position, size, count):
    return [
        row
        for rows in islice(stream.iterate_batches(position, size), count)
        for row in rows_as_tuples(rows)
    ]


@pytest.mark.parametrize("ratio", ["0.3", "0.999"])
def test_the_share_is_held_at_every_place_and_each_source_is_gone_through_as_if_alone(
    opened, ratio
):
    new, old = opened
    mixed = mixture(opened, ratio)
    taken, is_old = take(mixed, 0, 7, 100), mixed.is_old(0, 700)
    for place in range(701):
        assert abs(is_old[:place].sum() - place * Fraction(ratio)) < 1
    for stream, chosen in ((Stream(old, 1, 64), is_old), (Stream(new, 0, 64), ~is_old)):
        mine = [row for row, is_mine in zip(taken, chosen, strict=True) if is_mine]
        assert mine == take(stream, 0, 1, len(mine))


@pytest.mark.parametrize("ratio", ["0.5", "0.1"])
def test_any_place_continues_as_if_never_stopped(opened, ratio):
    whole = take(mixture(opened, ratio), 0, 14, 60)
    for position in (14, 98, 238, 406, 700):
        assert take(mixture(opened, ratio), position, 14, 3) == whole[position : position + 42]


def test_another_seed_another_order_and_old_data_in_another_order_than_it_was_first_seen(opened):
    new, old = opened
    replay = Replay(old, Fraction(1, 2))
    first, again, other = (take(Mixture.open(new, replay, seed), 0, 10, 10) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    mostly_old = take(Mixture.open(new, Replay(old, Fraction(999, 1000)), 0), 0, 10, 10)
    assert mostly_old[1:] != take(Stream(old, 0), 0, 10, 10)[:-1]


def test_a_continued_run_replays_and_resumes_to_the_bit(folders, tmp_path):
    new, old, older = folders
    base = pretrain(old, tmp_path / "base", steps=10, **SETTINGS)
    words = ["--start-from", base["discriminator"], "--start-generator-from", base["generator"]]
    words += ["--replay", old, older, "--replay-ratio", "0.4"]

    def continued(output):
        pretrain(new, output, *words, steps=24, **SETTINGS)

    continued(tmp_path / "whole")
    with terminated_at(15), pytest.raises(SystemExit) as stopped:
        continued(tmp_path / "cut")
    assert stopped.value.code == EXIT_TERMINATED
    continued(tmp_path / "cut")
    for role in ("discriminator", "generator"):
        made, again = (
            (tmp_path / way / role / "model.safetensors").read_bytes() for way in ("whole", "cut")
        )
        assert made == again
    card = (tmp_path / "whole" / "discriminator" / "README.md").read_text()
    assert "a share of 0.4 was replayed" in card
    assert "- replay: `" in card
    assert "- origin: `" in card


def test_replaying_something_else_is_another_run(folders, tmp_path):
    new, old, older = folders

    def replay(*words):
        pretrain(new, tmp_path, "--replay", *words, steps=3, **SETTINGS)

    replay(old)
    with pytest.raises(UserError, match=r"\breplay\b"):
        replay(older)
    with pytest.raises(UserError, match=r"replay_ratio.*1/2.*1/4"):
        replay(old, "--replay-ratio", "0.25")


def test_another_vocabulary_or_length_is_refused_by_name(folders, tmp_path):
    new = Shards.open(folders[0])
    words = write_shards(tmp_path / "words", sequences=20, size=120)
    long = write_shards(tmp_path / "long", sequences=20, length=64)
    with pytest.raises(UserError, match=f"`replay='{words}'`: .*{new.folder}"):
        open_replay(new, [folders[1], words], "0.5")
    with pytest.raises(UserError, match=rf"`replay='{long}'`: .*64"):
        open_replay(new, [long], "0.5")


@pytest.mark.parametrize("ratio", ["0", "1", "half", "0.12345678", "nan"])
def test_a_ratio_that_cannot_be_is_refused(ratio):
    with pytest.raises(UserError, match="`replay_ratio="):
        parse_ratio(ratio)
