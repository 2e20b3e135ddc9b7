"""Contrastive adaptation: the pairs it reads, its loss, and that cuts and kills change nothing."""

import json
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModel, BertConfig, BertModel

from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.model import contrastive, runtime
from amazon_electra.model.config import ContrastiveConfig, TrainingResources
from amazon_electra.model.contrastive import adapt_contrastively, compute_loss
from amazon_electra.model.pretraining.input.pairs import find_reason, is_title_of_stars, read_pairs
from tests.corpus_folder import SCHEMA, row
from tests.model.synthetic_shards import write_vocabulary
from tests.refusals import refuses

SMALL = ContrastiveConfig(
    batch=16, epochs=2, learning_rate=1e-3, body_tokens=16, title_tokens=8, log_every=1,
    precision="fp32",
)  # fmt: skip
WORDS = 60


def write_corpus(folder: Path, rows: list[tuple[str, str, str]]) -> Path:
    """Write split, title ("" for none) and body of each review."""
    folder.mkdir(parents=True, exist_ok=True)
    reviews = [
        row([text for text in (title, body) if text], split) | {"has_title": bool(title)}
        for split, title, body in rows
    ]
    table = pa.Table.from_pylist(reviews, schema=SCHEMA)
    pq.write_table(table, folder / "corpus-00000.parquet")
    return folder


def draw_rows(count: int, split: str = "pretrain", seed: int = 0) -> list[tuple[str, str, str]]:
    """Return reviews whose bodies speak of the two words of their titles."""
    generator = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        a, b, *others = generator.integers(0, WORDS, 5)
        body = " ".join(f"word{n}" for n in (others[0], a, others[1], b, others[2]))
        rows.append((split, f"word{a} word{b}", body))
    return rows


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    write_vocabulary(folder, WORDS + 5)
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=WORDS + 5, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32,
    )  # fmt: skip
    BertModel(shape).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), draw_rows(80))


def adapt(encoder: Path, corpus: Path, output: Path, threads: int | None = None, **changes):
    cpu = TrainingResources(device="cpu", threads=threads)
    return adapt_contrastively(SMALL.replace(**changes), encoder, [corpus], output, cpu)


def read_losses(output: Path) -> list[float]:
    lines = (output / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["contrastive_loss"] for line in lines]


@pytest.mark.parametrize(
    "title",
    ["Five Stars", "one star!", "5 Sterne", "Fünf Sterne", "Cinq étoiles", "Una estrella",
     "Cinque stelle", "cinco estrelas", "Vijf sterren", "Pięć gwiazdek", "Beş yıldız",
     "Пять звёзд", "4.0 out of 5 stars", "★★★★☆", "4/5", "星5つ", "五星", "별 다섯개"],
)  # fmt: skip
def test_a_title_of_stars_is_one_in_every_language(title):
    assert is_title_of_stars(title)
    others = ("Stars and stripes", "Five of them broke", "Star Wars", "5", "Great", "One of a kind")
    assert not any(map(is_title_of_stars, others))


def test_what_is_no_pair_is_left_out_by_reason():
    assert find_reason("Broke at once", "It lasted two days") is None
    assert find_reason("", "It lasted two days") == "no title"
    assert find_reason("Five Stars", "It lasted two years") == "a title of stars"
    assert find_reason("Good", "It works") == "a short body"
    assert find_reason("It lasted...", "It lasted, two days") == "a title that begins the body"
    assert find_reason("不错", "质量很好") is None  # no spaces, four words


def test_only_the_pretrain_split_gives_pairs(tmp_path):
    body = "word1 word2 word3"
    planted = [(split, f"secret of {split}", body) for split in ("train", "dev", "test")]
    rows = [*draw_rows(5), *planted, ("pretrain", "", body)]
    pairs = read_pairs([write_corpus(tmp_path, rows)], 16)
    assert len(pairs) == 5
    assert not any("secret" in title for title in pairs.titles)
    assert pairs.reviews == len(pairs) + sum(pairs.left_out.values()) == 6


def test_equal_titles_are_no_negatives():
    generator = torch.Generator().manual_seed(0)
    titles, bodies = (
        torch.nn.functional.normalize(torch.randn(4, 8, generator=generator), dim=1) for _ in "ab"
    )
    numbers = torch.tensor([0, 1, 0, 2])
    loss, _ = compute_loss(titles, bodies, numbers, 0.05)
    cosines = (titles @ bodies.T / 0.05).double()
    kept = [[0, 1, 3], [0, 1, 2, 3], [1, 2, 3], [0, 1, 2, 3]]
    each = [
        torch.logsumexp(way[i, kept[i]], 0) - way[i, i]
        for way in (cosines, cosines.T)
        for i in range(4)
    ]
    assert loss == pytest.approx(float(sum(each)) / 8, rel=1e-5)


def test_the_loss_falls_and_the_folder_loads(encoder, corpus, tmp_path):
    result = adapt(encoder, corpus, tmp_path, epochs=8)
    losses = read_losses(tmp_path)
    assert (result.pairs, result.steps, result.epochs) == (80, 40, 8)
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.1
    both = encoder, Path(result.encoder)
    before, after = (AutoModel.from_pretrained(one).state_dict() for one in both)
    words = "embeddings.word_embeddings.weight"
    assert torch.equal(before[words], after[words])
    layer = "encoder.layer.0.output.dense.weight"
    assert not torch.equal(before[layer], after[layer])
    assert (Path(result.encoder) / "tokenizer.json").exists()
    assert "word" not in (Path(result.encoder) / "README.md").read_text().split("## Data")[0]
    assert json.loads((tmp_path / "result.json").read_text())["encoder"] == result.encoder


@pytest.mark.parametrize("device_batch", [8, 3])
def test_a_smaller_device_batch_gives_the_same_losses(encoder, corpus, tmp_path, device_batch):
    adapt(encoder, corpus, tmp_path / "whole")
    adapt(encoder, corpus, tmp_path / "parts", device_batch=device_batch)
    expected = read_losses(tmp_path / "whole")
    assert read_losses(tmp_path / "parts") == pytest.approx(expected, rel=2e-4)


def test_more_threads_give_the_same_bytes(encoder, corpus, tmp_path):
    made = [
        adapt(encoder, corpus, tmp_path / str(threads), threads, device_batch=4)
        for threads in (1, 4)
    ]
    one, other = (Path(each.encoder) / "model.safetensors" for each in made)
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("is_killed", [False, True])
def test_interrupted_it_continues_to_the_same_bits(
    encoder, corpus, tmp_path, monkeypatch, is_killed
):
    """A SIGTERM stops it within the second step; a kill leaves the checkpoints by time."""
    settings = {"device_batch": 4, "log_every": 3}
    whole = adapt(encoder, corpus, tmp_path / "whole", **settings)
    embed, calls = contrastive.Contrast._embed, []

    def interrupt(self, *given):
        calls.append(given)
        if len(calls) == 14:
            if is_killed:
                raise KeyboardInterrupt
            signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
            while not self.stopping:  # or the step may end before the signal is handled
                time.sleep(0.001)
        return embed(self, *given)

    monkeypatch.setattr(contrastive.Contrast, "_embed", interrupt)
    monkeypatch.setattr(runtime, "CHECKPOINT_SECONDS", 0.0 if is_killed else 60.0)
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        adapt(encoder, corpus, tmp_path / "cut", **settings)
    [kept] = (tmp_path / "cut" / "checkpoints").glob("step-*")
    assert kept.name == "step-00000001"
    with refuses("seed"):  # it is of another run
        adapt(encoder, corpus, tmp_path / "cut", **settings, seed=1)
    again = adapt(encoder, corpus, tmp_path / "cut", **settings)
    weights = [Path(one.encoder) / "model.safetensors" for one in (whole, again)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert (again.steps, again.tokens, again.loss) == (10, whole.tokens, whole.loss)
    assert read_losses(tmp_path / "cut") == read_losses(tmp_path / "whole")


def test_too_few_pairs_are_refused(encoder, tmp_path):
    corpus = write_corpus(tmp_path / "corpus", draw_rows(5))
    with refuses(corpus):
        adapt(encoder, corpus, tmp_path / "output")


def test_two_processes_have_the_losses_of_one(encoder, corpus, tmp_path):
    words = ["--encoder", str(encoder), "--corpus", str(corpus), "--device", "cpu"]
    words += ["--batch=16", "--epochs=1", "--body_tokens=16", "--log_every=1", "--precision=fp32"]
    for processes in ("1", "2"):
        more = ["--output", str(tmp_path / processes), "--processes", processes]
        call_job(contrastive.adapt_contrastively, [*words, *more])
    expected = read_losses(tmp_path / "1")
    assert read_losses(tmp_path / "2") == pytest.approx(expected, rel=1e-4)
