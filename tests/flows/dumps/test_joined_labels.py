"""The labels of an added dump train beside those of the base, and its reviews are tested on: real
jobs on data, the encoder apart.
"""

import numpy as np
import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs.deduplication.held_out import find_withheld, join_sentences
from amazon_electra.flows.configuration.form import Addition, Parameters
from amazon_electra.flows.configuration.form_tools import fill_form
from amazon_electra.flows.dumps import increments, labels
from amazon_electra.flows.dumps.increments import Base, Round
from amazon_electra.flows.runner import stage_runner
from amazon_electra.flows.runs.champion import decide_promotion
from amazon_electra.flows.stages.comparison import load_scorer
from amazon_electra.flows.stages.corpus import build_corpus_stage
from amazon_electra.flows.stages.dump import list_dump
from amazon_electra.flows.store.stage import ExistingStage
from amazon_electra.model.evaluation.compare_folders import compare_folders
from amazon_electra.model.export import ExportCell, export
from amazon_electra.model.finetune import finetune
from amazon_electra.model.finetuning.config import FinetuneConfig
from amazon_electra.model.finetuning.examples import Sampling, load_examples
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.report.inputs import CellFacts, ReportInput, StageFacts
from amazon_electra.model.report.report import write_report
from tests.beam_jobs.dumps import review, text_of, write_lines
from tests.flows.dumps.test_increments import Making
from tests.flows.made import run_here
from tests.flows.test_comparison import WORDS

COPIES = 300
"""Reviews of the first dump that the second nearly repeats."""


def write_dump(path, count, seed, **fields):
    """Reviews of five words, of which four say what the stars say."""
    draw, records = np.random.default_rng(seed), []
    for number in range(count):
        is_good = bool(draw.integers(2))
        sides = [is_good] * 4 + [not is_good]
        words = [WORDS[draw.integers(300) + (0 if side else 300)] for side in sides]
        text = " ".join(draw.permutation(words)).capitalize() + "."
        own = {name: values[is_good] for name, values in fields.items()}
        stars = 5.0 if is_good else 1.0
        records.append(review(number, text, overall=stars, reviewerID=f"{seed}-{number}", **own))
    for number in range(COPIES):
        text = text_of(number) + (" Twice." if seed > 1 else "")
        records.append(review(number, text, overall=3.0, reviewerID=f"{seed}-near-{number}"))
    return write_lines(path, records)


class Joined:
    """A base of a dump, the dump that is added to it, and the labels of both, in a store."""

    def __init__(self, root, first, added, label=""):
        root.mkdir()
        self.make, self.root = Making(root / "store"), root
        kinds = ("late", "broken")
        one = write_dump(root / "spring.json", first, 1, **({"why": kinds} if label else {}))
        two = write_dump(root / "autumn.json", added, 2, **({"why": kinds} if label else {}))
        store = {"store": str(self.make.store.root)}
        given = [f"dump.labels={label}"] if label else []
        form = fill_form(
            Parameters, [*given, "corpus.workers=1"], dump={"paths": [str(one)]}, **store
        )
        dump = self.make(list_dump(form.dump, self.make))
        corpus = self.make(
            build_corpus_stage(form.corpus, form.dump, form.engine, dump, self.make.store)
        )
        encoder = ExistingStage("contrastive-adaptation", known="encoder")
        base = Base((Round(dump, corpus, encoder),))
        form = fill_form(Addition, ["increment.workers=1"], dump={"paths": [str(two)]}, **store)
        p = increments.inherit_settings(form, base)
        dump = self.make(list_dump(p.dump, self.make))
        self.p = p = labels.inherit_labels(p, corpus, dump, self.make)
        added = self.make(
            build_corpus_stage(p.corpus, p.dump, p.engine, dump, self.make.store, [corpus])
        )
        joined = increments.join_labels(base, Round(dump, added, encoder), self.make)
        folder = self.make.store.folder
        self.first, self.second, self.all = folder(corpus), folder(added), folder(joined)
        self.counts = self.make.store.manifest(joined)["result"]

    def fit(self, data):
        """A cell, its evaluation and the model of TF-IDF on a corpus."""
        cell, tested, model = (self.root / f"{data.parent.name}-{kind}" for kind in "abc")
        config = FinetuneConfig(
            task="polarity", arm="tfidf", settings={"selection": "cross-validation"}
        )
        finetune(config, data, cell, evaluation=tested)
        export([ExportCell("TF-IDF", cell, tested)], "polarity", data, model)
        return cell, tested, model


@pytest.fixture(scope="module")
def ten_times(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_runner, "run_job", run_here)
        yield Joined(tmp_path_factory.mktemp("ten") / "times", 300, 3_000)


def read_texts(folder, splits):
    return [
        text
        for file in sorted(folder.glob("corpus-*.parquet"))
        for batch in pq.ParquetFile(file).iter_batches()
        for text, split in zip(join_sentences(batch), batch["split"].to_pylist(), strict=True)
        if split in splits
    ]


TRAINED, HELD = ("pretrain", "train"), ("dev", "test")


def test_both_dumps_train_and_are_tested_on_and_no_text_is_on_both_sides(ten_times):
    first, second = (read_texts(f, (*TRAINED, *HELD)) for f in (ten_times.first, ten_times.second))
    trained, tested = (read_texts(ten_times.all, splits) for splits in (TRAINED, HELD))
    assert set(trained) | set(tested) < {*first, *second}
    for one in (first, second):
        assert set(one) & set(trained)
        assert set(one) & set(tested)
    is_test = np.arange(len(trained) + len(tested)) >= len(trained)
    assert not find_withheld([*trained, *tested], is_test)[0].any()
    encoded = read_texts(ten_times.first, TRAINED)  # what the encoder has read, labels or not
    is_test = np.arange(len(encoded) + len(tested)) >= len(encoded)
    assert not find_withheld([*encoded, *tested], is_test)[0].any()
    near = ten_times.counts["dropped"]["near an earlier review"]
    assert near == len(read_texts(ten_times.second, HELD)) - sum(
        ten_times.counts["dumps"]["autumn"][split] for split in HELD
    )
    read = sum(
        pq.read_metadata(f).num_rows
        for o in (ten_times.first, ten_times.second)
        for f in o.glob("*.parquet")
    )
    assert ten_times.counts["read"] == read == ten_times.counts["kept"] + near
    assert near > 10, "the test says nothing without near copies"


def test_ten_times_the_labels_become_champion(ten_times, tmp_path):
    """That a tenth does not: tests/flows/test_comparison.py."""
    _, _, champion = ten_times.fit(ten_times.first)
    cell, tested, model = ten_times.fit(ten_times.all)
    found = compare_folders(model, champion, "polarity", ten_times.all, 10_000, load_scorer)
    assert decide_promotion(found, 0, {}).promote, found
    assert found["trained_on"] == 0

    study = ReportInput(
        stages=[StageFacts(stage="labels of 2 dumps", counts=ten_times.counts)],
        cells=[CellFacts(arm="TF-IDF", task="polarity", seed=0, evaluation=tested, finetuned=cell)],
    )
    study.write(tmp_path / "study.json")
    write_report(tmp_path / "study.json", tmp_path)
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| spring |" in page
    assert "| autumn |" in page


def test_the_label_columns_of_the_base_are_read_of_the_added_dump(tmp_path, monkeypatch):
    monkeypatch.setattr(stage_runner, "run_job", run_here)
    joined = Joined(tmp_path / "labels", 300, 200, label="why")
    assert list(joined.p.dump.labels) == ["why"]
    assert joined.counts["labels"]["why"]["classes"] == ["broken", "late"]
    task = find_task("label:why", joined.all)
    examples = load_examples(task, joined.all, "train", Sampling(has_dev=False))
    assert 350 < len(examples) < 500
