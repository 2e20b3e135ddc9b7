"""Published models that have to be looked up on a hub, whose client is replaced."""

from pathlib import Path

import httpx
import huggingface_hub
import pytest
import torch
from huggingface_hub import constants, errors
from safetensors.torch import load_file

from amazon_electra.beam_jobs.core.errors import TransientError, UserError
from amazon_electra.model.encoders.places import is_named
from amazon_electra.model.origin import write_origin
from tests.model.encoders.checkpoints import write_checkpoint
from tests.refusals import refuses

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def answer(kind, status):
    return kind("x", response=httpx.Response(status, request=httpx.Request("GET", "http://hub")))


@pytest.mark.parametrize("is_pickled", [False, True])
def test_the_hub_pins_the_commit(tmp_path, monkeypatch, is_pickled):
    """Pickled weights are fetched only where there are no others."""
    folder, asked = write_checkpoint(tmp_path / COMMIT), []
    if is_pickled:
        torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()

    def download(name, revision, allow_patterns):
        asked.append((name, revision, "pytorch_model.bin" in allow_patterns))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    about = write_origin("lab/tiny@v1", tmp_path / "origin")
    assert (about["name"], about["revision"]) == ("lab/tiny", COMMIT)
    first, second = ("lab/tiny", "v1", False), ("lab/tiny", COMMIT, True)
    assert asked == ([first, second] if is_pickled else [first])


@pytest.mark.parametrize(
    ("error", "is_offline", "kind", "named"),
    [
        (answer(errors.RepositoryNotFoundError, 404), False, UserError, "lab/other"),
        (answer(errors.RevisionNotFoundError, 404), False, UserError, "lab/other@v9"),
        (answer(errors.HfHubHTTPError, 503), False, TransientError, "`hf download lab/other"),
        (errors.LocalEntryNotFoundError("x"), True, UserError, "`hf download lab/other"),
        (OSError("consistency check failed"), False, TransientError, "broke off"),
        (httpx.ReadError(""), False, TransientError, "broke off"),
    ],
)
def test_what_the_hub_does_not_give_is_named(tmp_path, monkeypatch, error, is_offline, kind, named):
    def download(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", is_offline)
    with refuses("place lab/other@v9: ", named, kind=kind):
        write_origin("lab/other@v9", tmp_path / "origin")
    assert not (tmp_path / "origin").exists()


def test_a_path_needs_no_looking_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("lab", "tiny").mkdir(parents=True)
    assert [is_named(one) for one in ("lab/tiny", "/lab/other")] == [False, False]
    assert [is_named(one) for one in ("lab/other", "package:one")] == [True, True]
