"""What a worker of a pool is asked to make, and what it refuses, in one line."""

import json
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.configuration.form import fill_parameters
from amazon_electra.flows.pool_worker import check_sources
from amazon_electra.flows.runner.pools.maker import USERS_MISTAKE, StageRequest
from amazon_electra.flows.stages import dump
from amazon_electra.flows.stages.external import build_external_stage
from amazon_electra.flows.store.stage import ExistingStage, write_request
from amazon_electra.flows.store.store import Store, read_code_version
from tests.flows.calls import call_of
from tests.flows.made import plan_stages


def plan(store, *settings):
    """The stages of a run that other hosts make; the dump is complete."""
    parameters = fill_parameters(settings, dump={"paths": ["sample:50"]}, store=str(store.root))
    stages = plan_stages(parameters, store)
    store.publish(stages[0], stages[0].result)
    return [stage for stage in stages if stage.pool]


def send(chain):
    """The request as Prefect passes it on."""
    request = StageRequest(
        make=[stage.path for stage in chain], stages=write_request(chain), code=read_code_version()
    )
    return json.loads(request.model_dump_json(exclude_defaults=True))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def test_every_stage_crosses_as_it_is(store):
    for one in plan(store, "pretraining.steps=5"):
        given = send([one])
        [other] = StageRequest(**given).read_stages()
        assert type(other) is type(one)
        assert len(json.dumps(given)) < 100_000, "Prefect takes half a megabyte"
        looked = ("fingerprint", "label", "labels", "scratch", "resources", "parameters")
        assert [getattr(other, name) for name in looked] == [getattr(one, name) for name in looked]


def change(given, old, new):
    text = json.dumps(given)
    assert old in text
    return StageRequest(**json.loads(text.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"title": false', '"title": true', r"corpus/[0-9a-f]{16} .* corpus/"),
        ('"corpus/', '"../corpus/', r"\.\./corpus/"),
        ('"corpus/', '"os-system/', "os-system"),
        ('"version": "', '"version": "1', r"\(1"),
        ('"title": false', '"module": "os"', "module"),
    ],
)
def test_a_host_with_other_code_says_so_before_it_makes_anything(store, old, new, named):
    [corpus, *_] = plan(store, "corpus.title=false")
    with pytest.raises(UserError, match=named):
        change(send([corpus]), old, new).read_stages()


def test_a_request_names_no_environment(store):
    [corpus, *_] = plan(store)
    given = send([corpus])
    given["stages"][corpus.path]["environment"] = {"LD_PRELOAD": "x.so"}
    with pytest.raises(UserError, match="environment"):
        StageRequest(**given).read_stages()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "somebody.module.Runner"),
        ("runner", "PortableRunner"),
        ("environment_type", "PROCESS"),
        ("setup_file", "/tmp/setup.py"),
        ("worker_address", '{"command": "./x.sh"}'),
        ("worker_address", "--setup_file=/tmp/setup.py"),
        ("job_endpoint", "embed"),
        ("flink_master", "--setup_file"),
        ("project", "--setup_file=/tmp/setup.py"),
        ("region", "--setup_file"),
        ("temp_location", "--setup_file"),
        ("workers", "--setup_file"),
    ],
)
def test_a_request_gives_beam_no_option_that_starts_programs(store, field, value):
    [corpus, *_] = plan(store)
    given = send([corpus])
    given["stages"][corpus.path]["resources"] = {"engine": {field: value}}
    with pytest.raises(UserError, match=field):
        StageRequest(**given).read_stages()


def test_a_sample_is_written_again_on_the_other_host_and_other_files_are_refused(tmp_path, store):
    [corpus, *_] = plan(store)
    reviews = corpus.inputs["dump"]
    [path] = (store.root / "samples").iterdir()
    whole = path.read_bytes()
    path.unlink()
    other = Store(tmp_path / "other")
    [there] = dump.locate_dump(reviews, other)
    assert there == str(other.root / "samples" / path.name)
    path.write_bytes(whole[:-1])
    with pytest.raises(UserError, match="sample"):
        dump.locate_dump(reviews, store)
    file = tmp_path / "reviews.json"
    file.write_text('{"reviewText": "good", "overall": 5}')
    reviews = dump.build_dump_stage(dump.Dump(paths=[str(file)]), store)
    assert dump.locate_dump(reviews, store) == [str(file)]
    file.unlink()
    with pytest.raises(UserError) as raised:
        dump.locate_dump(reviews, store)
    assert (raised.value.field, raised.value.value) == ("dump.paths", str(file))


def test_a_sample_for_an_engines_workers_lies_in_the_bucket(store):
    [corpus, *_] = plan(store)
    reviews = corpus.inputs["dump"]
    store.address = "memory://bucket/of-samples"
    [there] = dump.locate_dump(reviews, store, on_engine=True)
    [here] = dump.locate_dump(reviews, store)
    assert there == f"{store.address}/samples/{Path(here).name}"
    assert storage.hash_file(there) == reviews.parameters["files"][0]["sha256"]


def test_files_that_texts_are_withheld_for_are_the_same_on_the_other_host(tmp_path, store):
    file = tmp_path / "test.txt"
    file.write_text("good")
    [corpus, *_] = plan(store, f"corpus.withhold={file}")
    assert call_of(corpus, store)["withhold"] == [str(file)]
    file.write_text("other")
    with pytest.raises(UserError) as other:
        call_of(corpus, store)
    file.unlink()
    with pytest.raises(UserError) as missing:
        call_of(corpus, store)
    for raised in (other, missing):
        assert (raised.value.field, raised.value.value) == ("corpus.withhold", str(file))
    assert str(other.value) != str(missing.value)


def test_what_a_study_takes_from_elsewhere_is_the_same_on_the_other_host(tmp_path, store):
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "train.tsv").write_text("sentence\tlabel")
    task = build_external_stage(str(folder), store)
    cell = ExistingStage("finetuning", 1, {}, {"data": task})
    check_sources(cell, store)
    (folder / "train.tsv").write_text("sentence\tother")
    with pytest.raises(UserError, match=str(folder)):
        check_sources(cell, store)
    (folder / "train.tsv").unlink()
    folder.rmdir()
    with pytest.raises(UserError, match=str(folder)):
        check_sources(cell, store)


@pytest.mark.usefixtures("prefect_home")
def test_a_worker_finds_what_is_complete_and_refuses_what_no_run_asked_for(store):
    from amazon_electra.flows.pool_worker import run_stage

    [corpus, *_] = plan(store)
    store.publish(corpus, {"read": 50})
    assert run_stage(**send([corpus]), store=str(store.root)) == [corpus.path]
    refused = run_stage(store=str(store.root), return_state=True)
    with get_client(sync_client=True) as client:  # as the run that waits reads it
        known = client.read_flow_run(refused.state_details.flow_run_id).state
    assert (known.name, known.message) == (USERS_MISTAKE, refused.message)
