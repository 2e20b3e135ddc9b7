"""Copy a published encoder into a folder, for model.pretrain (--start-from), model.finetune and, as
vocabulary, beam_jobs.shards_job. `package:MODULE` is an installed package with the model inside.
"""

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from safetensors.torch import save_file
from tokenizers import Tokenizer
from typing_extensions import Doc

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.files import make_writable_folder, write_json
from amazon_electra.beam_jobs.core.nesting import find_json
from amazon_electra.beam_jobs.core.special_tokens import count_rows
from amazon_electra.beam_jobs.core.storage import hash_file
from amazon_electra.model.architecture import Architecture
from amazon_electra.model.encoders import known
from amazon_electra.model.encoders import weights as encoder_weights
from amazon_electra.model.encoders.config import (
    POOLING,
    TRAINED_LENGTH,
    Config,
    find_kind,
    read_architecture,
    read_config,
)
from amazon_electra.model.encoders.known import METADATA_FILE, read_card
from amazon_electra.model.encoders.places import FORMS, find_published, name_place
from amazon_electra.model.encoders.vocabulary import (
    check_entries,
    list_all_entries,
    load_published_tokenizer,
    write_published_tokenizer,
)
from amazon_electra.model.encoders.weights import check_size, load_masked_lm

WEIGHTS = "model.safetensors"
GENERATOR = "generator"
"""Subfolder of the published generator of an ELECTRA."""


def load_origin(
    place: Annotated[str, Doc(f"the published encoder: {FORMS}")],
    output: Annotated[str | Path, Doc("folder to copy it into")],
    generator: Annotated[
        str | None, Doc("published generator of an ELECTRA, in the same notation")
    ] = None,
) -> dict[str, Any]:
    """Copy a published encoder into a folder; return its licence, training data and shape."""
    output = Path(output)
    require(not output.exists() or output.is_dir(), f"{output} is a file; give a folder", "output")
    make_writable_folder("output", output.absolute().parent)
    return write_origin(place, output, generator)


def write_origin(
    place: str, folder: Path, generator: str | None = None, field: str = "place"
) -> dict[str, Any]:
    """Bring a published encoder into a folder and return its origin.json, written last. A hub name
    that is there already keeps its commit. Where it fails, nothing is left behind.
    """
    held: dict[str, Any] = find_json(folder / METADATA_FILE)
    places = held.get("place"), held.get("generator_place")
    is_same = "pooling" in held and places == (place, generator) and held["revision"]
    has_weights = is_same and (folder / WEIGHTS).is_file()
    if has_weights and hash_file(folder / WEIGHTS) == held["sha256"]:
        return held
    was_there = folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory(dir=folder, prefix=".writing-") as name:
            temporary = Path(name)
            about = _write_network(place, field, temporary)
            if generator:
                _add_generator(generator, temporary, about)
            (folder / METADATA_FILE).unlink(missing_ok=True)
            shutil.rmtree(folder / GENERATOR, ignore_errors=True)
            for part in sorted(temporary.iterdir()):
                os.replace(part, folder / part.name)
        write_json(folder / METADATA_FILE, about)
    except BaseException:
        if not was_there:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return about


def _add_generator(place: str, folder: Path, about: dict[str, Any]) -> None:
    """Write the published generator into its subfolder; UserError unless they belong together."""
    (folder / GENERATOR).mkdir()
    other = _write_network(place, "generator", folder / GENERATOR)
    own, its = ((part / "tokenizer.json").read_bytes() for part in (folder, folder / GENERATOR))
    is_pair = about["kind"] == other["kind"] == "electra" and other["has_mlm_head"]
    is_pair = is_pair and own == its
    require(is_pair, f"not the generator of {about['place']}", "generator", place)
    write_json(folder / GENERATOR / METADATA_FILE, other)
    about |= {"has_generator": True, "generator_place": place}


def _write_network(place: str, field: str, folder: Path) -> dict[str, Any]:
    """Write one network's files and return what origin.json says of it."""
    with name_place(field, place):
        found = find_published(place)
        source, config = found.folder, read_config(found.folder)
        shape, tokenizer = read_architecture(config), load_published_tokenizer(source)
        parameters, has_head = _check_network(source, config, shape, tokenizer)
        length = min(shape.max_positions, config.get(TRAINED_LENGTH) or shape.max_positions)
        about = known.describe_use(found.name, source)
        write_published_tokenizer(folder, tokenizer, source, length)
        pooling = {POOLING: "cls"} if about["pooling"] == "cls" else {}
        write_json(folder / "config.json", {**config, **pooling})
        _copy_tensors(source, folder / WEIGHTS)
        if (source / "README.md").is_file():
            shutil.copyfile(source / "README.md", folder / "README.md")
        named = ("hidden", "layers", "heads", "intermediate", "embedding", "max_positions")
        return {
            "place": place,
            "kind": config["model_type"],
            "name": found.name,
            "revision": found.revision,
            "version": found.version,
            **read_card(source),
            **about,
            **{name: getattr(shape, name) for name in (*named, "layer_norm_eps")},
            "vocabulary_size": count_rows(tokenizer),
            "lower_case": getattr(tokenizer.normalizer, "lowercase", None),
            "trained_length": length,
            "parameters": parameters,
            "has_generator": False,
            "has_mlm_head": has_head,
            "sha256": hash_file(folder / WEIGHTS),
        }


def _check_network(
    folder: Path, config: Config, shape: Architecture, tokenizer: Tokenizer
) -> tuple[int, bool]:
    """Return the trunk's parameters, and whether a head predicts masked tokens."""
    if find_kind(config) is None:
        network, lost = load_masked_lm(folder)
        check_size(network, count_rows(tokenizer))
        return sum(tensor.numel() for tensor in network.base_model.parameters()), not lost
    weights = encoder_weights.read_weights(folder, config)
    rows = len(weights[encoder_weights.WORDS])
    found: dict[str, Any] = {n: tuple(tensor.shape) for n, tensor in weights.items()}
    found |= {"vocab_size": rows, "layers": encoder_weights.count_layers(weights)}
    named = {"vocab_size": config.get("vocab_size", rows), "layers": shape.layers}
    for name, wanted in (named | dict(encoder_weights.list_shapes(shape))).items():
        its = found.get(name)
        require(its == wanted, f"config.json: {name}={wanted}, the weights have {its}")
    check_entries(list_all_entries(tokenizer), rows)
    parameters = sum(t.numel() for name, t in weights.items() if name.startswith("electra."))
    return parameters, encoder_weights.has_mlm_head(weights)


def _copy_tensors(folder: Path, target: Path) -> None:
    files = encoder_weights.list_tensor_files(folder)
    if [file.suffix for file in files] == [".safetensors"]:
        shutil.copyfile(files[0], target)
        return
    read = (one for file in files for one in encoder_weights.load_tensors(file).items())
    tensors = {name: tensor.contiguous().clone() for name, tensor in read}
    save_file(tensors, target, metadata={"format": "pt"})


if __name__ == "__main__":
    from amazon_electra.beam_jobs.core.command_line import run_as_command

    run_as_command(load_origin)
