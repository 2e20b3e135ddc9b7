"""Fine-tuning and its evaluation: one cell of the study is one arm, one task, one seed."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from beam_jobs.command import UserMistake
from flows.parameters import Arm, Parameters
from flows.stages.pretraining import architecture, objective
from flows.store import Stage, sha256
from model.finetuning.config import FinetuningSettings

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Cells run side by side; more threads each would only fight for the cores."""
CONFIG = "config.json"
WEIGHTS = [f"{name}{index}" for name in ("model.safetensors", "pytorch_model.bin") for index in ("", ".index.json")]
"""One of them is in every transformers folder."""


@dataclass(frozen=True)
class Cell:
    arm: Arm
    task: str
    seed: int
    finetuned: Stage
    evaluated: Stage

    @property
    def title(self) -> str:
        return f"{self.arm} · {self.task} · seed {self.seed}"


def demand_discriminator(parameters: Parameters) -> None:
    """Told before anything is made: what is fine-tuned, promoted and described is ELECTRA's discriminator."""
    asked = objective(parameters)
    if asked != "electra":
        raise UserMistake(
            f"pretraining.objective={asked}: a whole run adapts an ELECTRA; the deployment pre-train makes such "
            "an encoder, and a study may compare them (`amazon-electra study`)"
        )


def demand_splits(parameters: Parameters) -> None:
    """Told before anything is made: each cell trains on one side, chooses by another and is tested on a third."""
    shares = dict(part.split("=") for part in parameters.corpus.split.split(","))
    if empty := [side for side in ("train", "dev", "test") if not int(shares[side])]:
        raise UserMistake(
            f"corpus.split={parameters.corpus.split}: fine-tuning needs at least 1 for each of train, dev and test, "
            f"here {' and '.join(empty)} would be empty; the deployments prepare-data and pre-train need none of them"
        )


def demand_published(parameters: Parameters) -> None:
    """Told before anything is made: nothing is downloaded, so a model of the hub must be here by now."""
    from huggingface_hub import constants, try_to_load_from_cache

    name = parameters.finetuning.published
    if "published" not in parameters.finetuning.arms or not name or Path(name).expanduser().is_dir():
        return
    try:
        found = {file for file in (CONFIG, *WEIGHTS) if isinstance(try_to_load_from_cache(name, file), str)}
    except ValueError as wrong:
        raise UserMistake(f"finetuning.published: {str(wrong).splitlines()[0]}") from None
    if CONFIG not in found or len(found) == 1:
        raise UserMistake(
            f"finetuning.published: {name} is not in this machine's cache, {constants.HF_HUB_CACHE}; "
            f"fetch it first (hf download {name}), or give the path of its folder"
        )


def arms(parameters: Parameters, encoder: Stage, champion: Stage | None, base: Stage | None = None) -> dict[Arm, Stage]:
    """Each arm's encoder, in the order chosen; none is compared with itself.

    A model that wants to be champion is compared with the one that is. Where there is none, a model that goes on from
    another is compared with that one.
    """
    chosen = list(parameters.finetuning.arms)
    if parameters.promotion.mode != "off" and "champion" not in chosen:
        chosen.append("champion")
    if champion is None or champion.fingerprint == encoder.fingerprint:
        chosen = ["base" if arm == "champion" else arm for arm in chosen]
    sources: dict[Arm, Stage | None] = {
        "pre-trained": encoder,
        "random": encoder,
        "champion": champion,
        "base": None if base and champion and base.fingerprint == champion.fingerprint else base,
        "published": published(parameters.finetuning.published),
    }
    return {arm: source for arm in chosen if (source := sources[arm])}


def published(name: str) -> Stage | None:
    """An encoder of somebody else's: a folder is known by its files, a name on the hub by itself."""
    if not name:
        return None
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return Stage("published", 1, {"name": name}, result={"path": name})
    files = {p.name: sha256(p) for p in sorted(folder.iterdir()) if p.is_file()}
    return Stage("published", 1, {"files": files}, result={"path": str(folder.resolve())})


def cells(
    parameters: Parameters,
    corpus: Stage,
    vocabulary: Stage,
    encoder: Stage,
    champion: Stage | None,
    base: Stage | None = None,
) -> Iterator[Cell]:
    """The study, in the order of the report; `base` is the model this one goes on from, if any."""
    sources = arms(parameters, encoder, champion, base)
    for task in parameters.finetuning.tasks:
        for seed in parameters.finetuning.seeds:
            for arm, source in sources.items():
                finetuned = finetune(parameters, arm, task, seed, corpus, vocabulary, source)
                yield Cell(arm, task, seed, finetuned, evaluate(task, corpus, finetuned))


def finetune(
    parameters: Parameters, arm: Arm, task: str, seed: int, corpus: Stage, vocabulary: Stage, encoder: Stage
) -> Stage:
    """The random arm shares architecture and vocabulary with the pre-trained one and does not depend on its weights."""
    rates = [str(rate) for rate in parameters.finetuning.learning_rates]
    device = parameters.pretraining.device
    random = arm == "random"
    finetuned = Stage(
        "finetuning",
        2,
        {
            "task": task,
            "seed": seed,
            "arm": arm,
            "learning_rates": rates,
            **architecture(parameters),
            "preset.finetuning": asdict(FinetuningSettings.of_preset(parameters.preset)),
            **({"settings": parameters.pretraining.settings} if random else {}),
        },
        {"corpus": corpus, **({"vocabulary": vocabulary} if random else {"encoder": encoder})},
        "model.finetune",
        lambda store, folder: [
            *encoder_arguments(random, encoder.result.get("path") or str(store.folder(encoder) / "discriminator")),
            *["--task", task, "--data", str(store.folder(corpus))],
            *["--output", str(folder)],
            *["--preset", parameters.preset, "--seed", str(seed), "--device", device],
            *["--evaluation", str(store.folder(evaluate(task, corpus, finetuned)))],
            *(["--learning_rate", *rates] if rates else []),
        ],
        title=f"{arm} · {task} · seed {seed}",
        environment=ONE_THREAD,
        tracked=True,
    )
    return finetuned


def encoder_arguments(random: bool, folder: str) -> list[str]:
    return ["--encoder", "random", "--architecture", folder] if random else ["--encoder", folder]


def evaluate(task: str, corpus: Stage, finetuned: Stage) -> Stage:
    """Usually made by the fine-tuning job along the way, which saves the start of another process."""
    return Stage(
        "evaluation",
        2,
        {"task": task, "split": "test"},
        {"corpus": corpus, "model": finetuned},
        "model.evaluate",
        lambda store, folder: [
            *["--model", str(store.folder(finetuned))],
            *["--task", task, "--data", str(store.folder(corpus)), "--split", "test"],
            *["--output", str(folder)],
        ],
        title=f"{finetuned.title} · test",
        written_last="metrics.json",
        environment=ONE_THREAD,
    )
