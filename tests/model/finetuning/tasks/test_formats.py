"""Every task format read from small files written here, and from published ones where they are at
hand.
"""

import gzip
import json

import pytest

from amazon_electra.model.finetuning.examples import SPLITS, Sampling, load_examples
from amazon_electra.model.finetuning.files import parse_json_text
from amazon_electra.model.finetuning.tasks import conll, find_task, glue, swag

EVERYTHING = Sampling()


def splits(name, data):
    task = find_task(name, data)
    return {split: load_examples(task, data, split, EVERYTHING) for split in SPLITS}


@pytest.mark.parametrize("name", ["mrpc", "sts-b"])
def test_unordered_pairs_train_on_both_orders(tmp_path, name):
    """Of the sample each pair comes twice, as in google's double_unordered; not where the swapped
    pair is one of test, and never in dev or test.
    """
    spec = glue.SPECS[name]
    columns = [spec.label, spec.text, str(spec.pair)]
    rows = {
        "train": [(str(i % 2), f"a{i}", f"b{i}") for i in range(60)],
        "dev": [("1", "b0", "a0")],
    }
    for split, pairs in rows.items():
        lines = ["\t".join(columns), *("\t".join(pair) for pair in pairs)]
        (tmp_path / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    task = find_task(name)
    dev = load_examples(task, tmp_path, "dev", Sampling())
    train = load_examples(task, tmp_path, "train", Sampling())
    pairs = [(e.text, e.pair) for e in train]
    straight = [pair for pair in pairs if pair[0].startswith("a")]
    assert len(straight) == 60 - len(dev)
    assert len(set(pairs)) == len(pairs)
    assert len({e.id for e in train}) == len(train)
    swapped = {(b, a) for a, b in straight} - {("b0", "a0")}
    assert set(pairs) - set(straight) == swapped
    assert len(load_examples(task, tmp_path, "test", Sampling())) == 1
    sampled = load_examples(task, tmp_path, "train", Sampling(10))
    assert len({e.text.strip("ab") for e in sampled}) == 10


def test_fasttext_splits_by_text(tmp_path):
    lines = [f"__label__{1 + i % 2} Title {i // 2}: some text {i // 2}" for i in range(400)]
    (tmp_path / "plain.txt").write_text("\n".join(lines))
    with gzip.open(tmp_path / "packed.txt", "wt") as file:
        file.write("\n".join(lines))
    read = splits("amazon-sentiment", tmp_path / "plain.txt")
    assert sum(map(len, read.values())) == 400
    assert not {e.text for e in read["train"]} & {e.text for e in read["test"]}
    packed = splits("amazon-sentiment", tmp_path / "packed.txt")
    assert packed["dev"]
    assert {e.text for e in packed["dev"]} == {e.text for e in read["dev"]}


def test_half_a_character_is_a_question_mark():
    read = parse_json_text(r'["a \ud83d\ude00 grin", "cut \ud83d here"]')
    assert read == ["a \U0001f600 grin", "cut ? here"]


@pytest.mark.parametrize("name", list(glue.SPECS))
def test_glue_measures_on_the_official_dev_set(tmp_path, name):
    spec = glue.SPECS[name]
    header = spec.header or tuple(filter(None, ("index", spec.text, spec.pair, spec.label)))
    dev = {"mnli": "dev_matched.tsv", "mnli-mm": "dev_mismatched.tsv"}.get(name, "dev.tsv")
    for file, n in (("train.tsv", 60), (dev, 20), ("test.tsv", 5)):
        rows = [[_cell(spec, column, i, file) for column in header] for i in range(n)]
        lines = ["\t".join(row) for row in (rows if spec.header else [header, *rows])]
        (tmp_path / file).write_text("\n".join(lines) + "\n")
    read = splits(name, tmp_path)
    assert len(read["test"]) == 20
    assert len([e for e in read["train"] if not e.is_swapped]) + len(read["dev"]) == 60
    assert all(e.text.startswith("train") for e in read["dev"])
    other = {"cola": "matthews", "mrpc": "f1", "qqp": "f1", "sts-b": "pearson"}
    assert find_task(name).metrics[0] == other.get(name, "accuracy")


def _cell(spec, column, i, file):
    if column == spec.label:
        return spec.labels[i % len(spec.labels)] if spec.labels else f"{i % 5}.5"
    return str(i) if column == "index" else f'{file.split(".")[0]} "{column} {i}'


def test_squad_keeps_a_passage_on_one_side(tmp_path):
    def ask(p, q, answers):
        return {"id": f"{p}-{q}", "question": "Who lives?", "answers": answers}

    paragraphs = []
    for p in range(50):
        answers = [{"text": f"Peter {p}", "answer_start": 0}]
        qas = [*(ask(p, q, answers) for q in range(3)), ask(p, "no", [])]
        paragraphs.append({"context": f"Peter {p} lives in London.", "qas": qas})
    content = {"data": [{"title": "T", "paragraphs": paragraphs}]}
    (tmp_path / "squad.json").write_text(json.dumps(content))
    read = splits("squad2", tmp_path)
    assert sum(map(len, read.values())) == 200
    assert not {e.pair for e in read["train"]} & {e.pair for e in read["test"]}
    answered = next(e for e in read["train"] if e.answers)
    text, start = answered.answers[0]
    assert answered.pair[start : start + len(text)] == text


def test_conll_in_either_scheme(tmp_path):
    (tmp_path / "eng.train").write_text(
        "-DOCSTART- -X- O O\n\nPeter NNP I-NP I-PER\nsat VBD I-VP O\n\n"
        "UN NNP I-NP I-ORG\nParis NNP I-NP B-ORG\n"
    )
    first, second = conll.read_sentences(tmp_path / "eng.train")
    assert first.words == ("Peter", "sat")
    assert [conll.LABELS[t] for t in first.tags] == ["B-PER", "O"]
    assert [conll.LABELS[t] for t in second.tags] == ["B-ORG", "B-ORG"]


def test_endings_of_swag_follow_the_second_sentence(tmp_path):
    header = "video-id,sent1,sent2,ending0,ending1,ending2,ending3,label"
    (tmp_path / "val.csv").write_text(f"{header}\nv,It begins.,He,runs,sits,eats,sleeps,2")
    [example] = swag.read_swag_questions(tmp_path / "val.csv")
    assert example.choices == ("He runs", "He sits", "He eats", "He sleeps")
    assert (example.text, example.label) == ("It begins.", 2)
