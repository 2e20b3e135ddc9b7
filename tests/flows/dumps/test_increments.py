"""Three dumps arriving in turn, through the real jobs on data, without training: the corpus of all
at once, at the cost of what is new.
"""

import hashlib

import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.configuration.form import Addition, Dump, fill_parameters
from amazon_electra.flows.configuration.form_tools import fill_form
from amazon_electra.flows.dumps import increments
from amazon_electra.flows.runner import stage_runner
from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.stages import dump as dump_stage
from amazon_electra.flows.stages.corpus import build_corpus_stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.tracking.mlflow_run import Tracking
from tests.beam_jobs.dumps import review, rows_of, run_job, text_of, write_lines
from tests.flows.calls import call_of
from tests.flows.made import encoder_graph, publish, run_here

REVIEWS = {"zebra": range(300), "apple": range(250, 400), "mango": range(350, 450)}
"""The numbers of the texts in each dump, in the order of arrival: 50 of apple's are zebra's, 50 of
mango's apple's.
"""


class Making:
    """Goes through a graph without Prefect and MLflow, and trains nothing."""

    def __init__(self, root):
        self.store, self.stages = Store(root), []
        self._completion = StageRunner(self.store, [], Tracking(f"sqlite:///{root}/unused.db"))

    def find_champion(self, task):
        return None

    def __call__(self, stage):
        if stage.name == "pretraining":
            publish(self.store, stage)
        else:
            self._completion.complete_stage(stage)
        self.stages.append(stage)
        return stage


def write_dump(folder, name):
    copies = [
        review(i, text_of(i).upper() if i % 2 else text_of(i), reviewerID=f"{name}-{i}")
        for i in REVIEWS[name]
    ]
    return write_lines(folder / f"{name}.json.gz", copies)


def form_of(root, path, base):
    increment = {"base": base, "workers": 1}
    dump = {"paths": [str(path)]}
    return fill_form(
        Addition, ["increment.warmup=0.5"], dump=dump, increment=increment, store=str(root)
    )


@pytest.fixture(scope="module")
def turns(tmp_path_factory):
    """The store, the three dumps, and what was made of them in turn; each dump is gone before the
    next arrives. The jobs run in this process.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_runner, "run_job", run_here)
        yield make_turns(tmp_path_factory)


def make_turns(tmp_path_factory):
    at = tmp_path_factory.mktemp("turns")
    make, kept = Making(at / "store"), {}
    (at / "kept").mkdir()
    for name in REVIEWS:
        kept[name] = write_dump(at / "kept", name)
    arriving = at / "zebra.json.gz"
    arriving.write_bytes(kept["zebra"].read_bytes())
    settings = ["vocabulary.size=400", "pretraining.hidden=32", "corpus.workers=1"]
    first = fill_parameters(
        settings, dump={"paths": [str(arriving)]}, store=str(at / "store"), recipe="sample"
    )
    base = increments.resolve_base(encoder_graph(first, make).fingerprint, make)
    bases = [base]
    for name in ("apple", "mango"):
        arriving.unlink()
        arriving = at / f"{name}.json.gz"
        arriving.write_bytes(kept[name].read_bytes())
        form = form_of(at / "store", arriving, base.encoder.fingerprint)
        p = increments.inherit_settings(form, base)
        dump = make(dump_stage.list_dump(p.dump, make))
        earlier = [one.corpus for one in base.rounds]
        corpus = make(build_corpus_stage(p.corpus, p.dump, p.engine, dump, make.store, earlier))
        base = increments.add_round(p, base, dump, corpus, make)
        bases.append(base)
    return make, kept, bases


def corpora(make, base):
    return [make.store.folder(one.corpus) for one in base.rounds]


def digest(*folders):
    rows = sorted(
        (row["review_id"], row["sentences"]) for folder in folders for row in rows_of(folder)
    )
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def result(make, stage):
    return make.store.manifest(stage)["result"]


def test_three_dumps_in_turn_give_the_corpus_of_all_at_once_in_that_order(turns, tmp_path):
    make, kept, bases = turns
    in_turn = corpora(make, bases[-1])
    inputs = [word for path in kept.values() for word in ("--input", path)]
    run_job(tmp_path / "once", *inputs, "--punkt", in_turn[0] / "punkt.json")
    assert digest(*in_turn) == digest(tmp_path / "once")


def test_each_round_reads_its_own_dump_only_and_keeps_the_vocabulary(turns):
    make, _, bases = turns
    counts = [result(make, one.corpus) for one in bases[-1].rounds]
    assert [c["read"] for c in counts] == [300, 150, 100]
    assert [c["kept"] for c in counts] == [300, 100, 50]
    assert [c["dropped"].get("seen before", 0) for c in counts] == [0, 50, 50]
    fingerprints = {result(make, one.shards)["vocabulary_fingerprint"] for one in bases[-1].rounds}
    assert fingerprints == {result(make, bases[0].vocabulary)["fingerprint"]}
    assert [stage.name for stage in make.stages].count("vocabulary") == 1
    documents = [result(make, one.shards)["documents"] for one in bases[-1].rounds]
    assert documents == [c["splits"]["pretrain"] for c in counts]


def test_a_held_out_text_that_arrives_again_never_reaches_pre_training(turns):
    make, _, bases = turns
    first = rows_of(corpora(make, bases[0])[0])
    held_out = {row["text_hash"] for row in first if row["split"] != "pretrain"}
    arriving_again = {
        i for i in REVIEWS["apple"] if any(f"Item {i} " in row["sentences"][0] for row in first)
    }
    marks = {
        int(row["sentences"][0].split()[1]) for row in first if row["split"] != "pretrain"
    } & arriving_again
    assert len(marks) >= 3, "some held-out texts must come again for the test to say anything"
    later = [row for folder in corpora(make, bases[-1])[1:] for row in rows_of(folder)]
    assert held_out.isdisjoint(row["text_hash"] for row in later)
    tokenizer = Tokenizer.from_file(str(make.store.folder(bases[0].vocabulary) / "tokenizer.json"))
    for one in bases[-1].rounds:
        seen = " ".join(
            tokenizer.decode(ids)
            for shard in make.store.folder(one.shards).glob("shard-*.parquet")
            for ids in pq.read_table(shard)["input_ids"].to_pylist()
        )
        assert "item" in seen
        assert [mark for mark in marks if f"item {mark} arrived" in seen] == []


def test_pre_training_continues_with_the_settings_of_the_base_on_new_and_old(turns, tmp_path):
    make, _, bases = turns
    first, apple, mango = bases[-1].rounds
    call = call_of(mango.encoder, make.store)
    assert call["replay"] == [make.store.folder(one.shards) for one in (first, apple)]
    assert call["config"].replay_ratio == 0.5
    assert call["start_from"] == make.store.folder(apple.encoder) / "discriminator"
    assert {"hidden": "32", "warmup": "0.5"}.items() <= call["config"].settings.items()


def test_a_base_by_its_name(turns):
    make, kept, bases = turns
    store, encoders = make.store, [base.encoder.fingerprint for base in bases]

    def named(name, path, champion=""):
        new = dump_stage.build_dump_stage(Dump(paths=[str(path)]), store)
        return increments.find_base(name, new, store, champion)

    other = write_lines(store.root.parent / "other.json.gz", [review(9999)])
    assert named("last", other) == encoders[-1]
    assert named(encoders[1][:9], other) == encoders[1]
    assert named("champion", other, champion=encoders[0]) == encoders[0]
    assert increments.find_newest_model(store, encoders[0]) == encoders[-1]
    assert named("last", kept["mango"]) == encoders[1], "the same request again means the same base"
    assert named(encoders[-1], kept["apple"]) == encoders[0]
    later = store.folder(bases[-1].rounds[-1].corpus) / "manifest.json"
    whole = later.read_bytes()
    later.unlink()
    assert named("last", other) == encoders[1], "of what is whole, the newest"
    with pytest.raises(UserError, match=bases[-1].rounds[-1].corpus.fingerprint):
        named(encoders[-1], other)
    later.write_bytes(whole)
    with pytest.raises(UserError, match="champion"):
        named("champion", other)
    with pytest.raises(UserError, match="last"):
        named("last", kept["zebra"])
    with pytest.raises(UserError, match="feedbeef"):
        named("feedbeef", other)
