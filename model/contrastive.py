"""Adapts an encoder to a corpus by contrast, without a label: each title shall find its own body.
The loss is the symmetric InfoNCE (arXiv 1807.03748, 2103.00020) of the cosines of a whole batch,
whose gradients are made part by part (arXiv 2101.06983).
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import Doc

from amazon_electra.beam_jobs.core.errors import refuse, require
from amazon_electra.beam_jobs.core.files import make_writable_folder, write_json
from amazon_electra.beam_jobs.core.progress import Progress
from amazon_electra.beam_jobs.core.storage import hash_file
from amazon_electra.model.config import (
    ALL_CORES,
    CONTRASTIVE_VERSION,
    FREE_CONTRASTIVE_SETTINGS,
    ContrastiveConfig,
    TrainingResources,
)
from amazon_electra.model.device import Device, open_device
from amazon_electra.model.encoders.config import TRAINED_LENGTH, count_positions
from amazon_electra.model.encoders.export import write_folder
from amazon_electra.model.encoders.known import describe_start
from amazon_electra.model.finetuning.network import load_tokenizer, open_autocast, pool_tokens
from amazon_electra.model.pretraining.input.pairs import MIN_PAIRS, read_pairs
from amazon_electra.model.pretraining.optimizer import compute_learning_rate
from amazon_electra.model.pretraining.save import ORIGIN_FIELDS, render_front_matter
from amazon_electra.model.processes import check_processes, run_processes
from amazon_electra.model.report.document import render_template
from amazon_electra.model.runtime import (
    Checkpoints,
    Meter,
    Run,
    State,
    copy_tensors,
    restore_tensors,
)
from amazon_electra.model.threads import Map, share_cores
from amazon_electra.model.tracking.metrics_log import MetricsLog

SEEN_PAIRS, MAX_EPOCHS = 10_000, 3
"""Where `epochs` is not set, passes until so many pairs were seen: 10,089 once gained 1.2 to 4.7
points with 3,000 to 50 labels, 4,067 three times 0.6 after fine-tuning on 4,170.
"""
CPU_ROWS = 32
"""Texts of about one length that a CPU encodes at once: short ones are then padded little."""


@dataclass(frozen=True)
class ContrastiveResult:
    """What an adaptation did; result.json beside the encoder."""

    encoder: str
    """Folder for --start-from."""
    pairs: int
    reviews: int
    left_out: dict[str, int]
    """Reviews of the pretrain split that gave no pair, by reason."""
    epochs: int
    steps: int
    tokens: int
    """Tokens of titles and bodies, over all epochs."""
    loss: float
    """Mean of the last logged steps."""
    accuracy: float
    """Share of the titles whose body was the nearest of the batch, likewise."""
    seconds: float
    cpu_seconds: float
    peak_memory_mb: float
    parameters: int
    device: str
    precision: str
    warnings: list[str] = field(default_factory=list)


class Stopped(Exception):
    """A SIGTERM between the parts of a batch; the weights are those of the step before."""


@dataclass
class ContrastTotals:
    """What all runs of one output have done."""

    step: int = 0
    tokens: int = 0
    loss: float = 0.0
    accuracy: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class Texts:
    """Token ids of all titles and bodies, and numbers that are equal for equal titles."""

    titles: list[list[int]]
    bodies: list[list[int]]
    title_numbers: np.ndarray

    def hash(self) -> str:
        digest = hashlib.sha256()
        for ids in (*self.titles, *self.bodies):
            digest.update(np.asarray(ids, np.int64).tobytes() + b"|")
        return digest.hexdigest()


def tokenize(tokenizer: Tokenizer, texts: list[str], longest: int) -> list[list[int]]:
    tokenizer.enable_truncation(longest)
    return [one.ids for one in tokenizer.encode_batch_fast(texts)]


def iterate_batches(pairs: int, batch: int, seed: int, first: int) -> Iterator[np.ndarray]:
    """Yield the pairs of each step from `first` on; an epoch leaves out what fills no batch."""
    per_epoch, step = pairs // batch, first
    while True:
        epoch, place = divmod(step, per_epoch)
        order = np.random.default_rng((seed, epoch)).permutation(pairs)
        for start in range(place * batch, per_epoch * batch, batch):
            yield order[start : start + batch]
            step += 1


def compute_loss(
    titles: Tensor, bodies: Tensor, numbers: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return the symmetric InfoNCE of a batch, and the share of titles that find their body.

    Embeddings are fp32 [pairs, width] of length 1, `numbers` [pairs] equal for equal titles: such
    pairs are no negatives of each other.
    """
    cosines = titles @ bodies.T / temperature
    own = torch.eye(len(numbers), dtype=torch.bool, device=numbers.device)
    is_other = (numbers[:, None] != numbers[None]) | own
    cosines = cosines.masked_fill(~is_other, -torch.inf)
    target = torch.arange(len(numbers), device=numbers.device)
    both = [functional.cross_entropy(one, target) for one in (cosines, cosines.T)]
    found = (cosines.detach().argmax(1) == target).float().mean()
    return (both[0] + both[1]) / 2, found


@dataclass
class Contrast(Run):
    """The network, its texts and its optimizer; of several processes none stops within a step."""

    config: ContrastiveConfig
    network: Any
    texts: Texts
    device: Device
    steps: int
    batch: int
    map_parts: Map
    checkpoints: Checkpoints

    def __post_init__(self) -> None:
        config, device, network = self.config, self.device, self.network
        network.to(device.torch).eval()  # no dropout
        network.set_attn_implementation("eager")  # fused ones are slower for such short texts
        words = network.get_input_embeddings().weight
        words.requires_grad_(False)  # words that the pairs lack must not stay behind
        learning = [p for p in network.parameters() if p.requires_grad]
        matrices, others = (
            [p for p in learning if (p.ndim > 1) is is_one] for is_one in (True, False)
        )
        self.parameters = [*matrices, *others]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": config.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=config.learning_rate,
            fused=device.fused_optimizer,
        )
        self.totals = ContrastTotals()
        self.window: list[tuple[Tensor, Tensor]] = []  # of the steps since the last line of the log
        if state := self.checkpoints.find(device):
            restore_tensors(state.tensors, network, self.optimizer, device)
            self.totals = ContrastTotals(**state.numbers["totals"])
            self.window = [(torch.tensor(a), torch.tensor(b)) for a, b in state.numbers["window"]]

    def train(self, output: Path) -> None:
        """Take the steps that are left."""
        totals, device, pairs = self.totals, self.device, len(self.texts.titles)
        logged = totals.step - len(self.window)
        self.log = MetricsLog(output, after_step=logged or None) if device.is_rank0 else None
        self.batches = iterate_batches(pairs, self.batch, self.config.seed, totals.step)
        self.meters = Meter(time.monotonic), Meter(time.process_time)
        self.logged = totals.seconds, totals.tokens
        title = "contrastive adaptation"
        with Progress(self.steps, "steps", title, done=totals.step) as self.bar:
            self.run()
        totals.cpu_seconds = device.add_number(totals.cpu_seconds)

    def is_over(self) -> bool:
        return self.totals.step >= self.steps

    def take_step(self) -> None:
        with suppress(Stopped):
            self.window.append(self._learn(next(self.batches)))

    def review_step(self, keeps: bool, stopping: bool) -> None:
        is_due = self.is_over() or self.totals.step % self.config.log_every == 0
        if not (self.window and is_due):
            return
        self.device.wait()
        self._measure()
        totals, (began, tokens) = self.totals, self.logged
        loss, accuracy = (float(torch.stack(one).mean()) for one in zip(*self.window, strict=True))
        remedy = "take a lower `learning_rate`, in another `output`"
        require(math.isfinite(loss), f"step {totals.step}: the loss is no number; {remedy}")
        totals.loss, totals.accuracy = loss, accuracy
        seconds = max(totals.seconds - began, 1e-9)
        if self.log:
            self.log.log(
                totals.step,
                contrastive_loss=loss,
                contrastive_accuracy=accuracy,
                pairs_per_second=len(self.window) * self.batch / seconds,
                tokens_per_second=(totals.tokens - tokens) / seconds,
            )
        self.bar.update(totals.step, loss=round(loss, 3))
        self.logged = totals.seconds, totals.tokens
        self.window = []

    def copy_state(self) -> State | None:
        """Copy the state to the CPU, but that of the end, which goes into the encoder."""
        if self.is_over():
            return None
        self._measure()
        numbers = {
            "totals": vars(self.totals).copy(),
            "window": [[float(loss), float(accuracy)] for loss, accuracy in self.window],
        }
        return State(self.totals.step, copy_tensors(self.network, self.optimizer), numbers)

    def _measure(self) -> None:
        """Add what was used since the last call to the totals."""
        seconds, cpu_seconds = (meter.take() for meter in self.meters)
        self.totals.seconds += seconds
        self.totals.cpu_seconds += cpu_seconds

    def _learn(self, chosen: np.ndarray) -> tuple[Tensor, Tensor]:
        """Take one step on the pairs of a batch; return loss and accuracy, unread."""
        config, device, texts = self.config, self.device, self.texts
        progress = (self.totals.step + 1) / (self.steps + 1)
        for group in self.optimizer.param_groups:
            group["lr"] = compute_learning_rate(config.learning_rate, config.warmup, progress)
        share = len(chosen) // device.world_size
        mine = slice(device.rank * share, (device.rank + 1) * share)
        rows = [texts.titles[i] for i in chosen[mine]] + [texts.bodies[i] for i in chosen[mine]]
        holds_all = (config.device_batch or share) >= share
        parts = self._cut(rows, share if holds_all else config.device_batch or share)

        def embed(part: np.ndarray, keeps_graph: bool = holds_all) -> Tensor:
            with torch.set_grad_enabled(keeps_graph), open_autocast(device):
                return self._embed(rows, part)

        found = list(self.map_parts(embed, parts))
        order = torch.as_tensor(np.argsort(np.concatenate(parts)), device=device.torch)
        embedded = torch.cat([one.detach() for one in found])[order]

        every = embedded.new_zeros(2, device.world_size, share, embedded.shape[1])
        every[:, device.rank] = embedded.view(2, share, -1)
        device.all_reduce_sum([every])
        every = every.flatten(0, 2).requires_grad_()  # all titles of all processes, all bodies
        numbers = torch.as_tensor(texts.title_numbers[chosen], device=device.torch)
        half = len(chosen)
        loss, accuracy = compute_loss(every[:half], every[half:], numbers, config.temperature)
        [wanted] = torch.autograd.grad(loss, every)
        wanted = torch.cat([wanted[:half][mine], wanted[half:][mine]])

        def differentiate(one: Tensor, part: np.ndarray) -> Sequence[Tensor | None]:
            one = one if holds_all else embed(part, True)
            own = wanted[torch.as_tensor(part, device=device.torch)]
            return torch.autograd.grad(one, self.parameters, own, allow_unused=True)

        # added in the order of the parts, so that the number of workers changes no byte
        for gradients in self.map_parts(differentiate, found, parts):
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                if gradient is not None:
                    before = parameter.grad
                    parameter.grad = gradient if before is None else before.add_(gradient)
        device.all_reduce_sum([p.grad for p in self.parameters if p.grad is not None])
        nn.utils.clip_grad_norm_(self.parameters, config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        device.end_step()
        self.totals.step += 1
        self.totals.tokens += sum(
            len(texts.titles[i]) + len(texts.bodies[i]) for i in chosen.tolist()
        )
        return loss.detach(), accuracy

    def _cut(self, rows: list[list[int]], pairs: int) -> list[np.ndarray]:
        """Return which rows are encoded at once: on a CPU those of about one length, elsewhere
        titles and bodies apart, padded to one length each, so that shapes never change.
        """
        half = len(rows) // 2
        if self.device.kind != "cpu":
            ways = (np.arange(half), np.arange(half, len(rows)))
            return [one for way in ways for one in np.split(way, range(pairs, half, pairs))]
        order = np.argsort([len(row) for row in rows], kind="stable")
        size = min(CPU_ROWS, 2 * pairs)
        return np.split(order, range(size, len(rows), size))

    def _embed(self, rows: list[list[int]], part: np.ndarray) -> Tensor:
        """Return what `pool_tokens` makes of last states, fp32 [texts, width], at length 1."""
        if self.stopping and self.device.world_size == 1:
            raise Stopped
        chosen = [rows[i] for i in part]
        if self.device.kind == "cpu":
            longest = max(map(len, chosen))
        else:
            is_title = part[0] < len(rows) // 2
            longest = self.config.title_tokens if is_title else self.config.body_tokens
        pad = self.network.config.pad_token_id or 0
        ids = np.full((len(chosen), longest), pad, np.int64)
        for row, one in zip(ids, chosen, strict=True):
            row[: len(one)] = one
        lengths = np.array([len(one) for one in chosen])
        inputs = self.device.put(
            {"input_ids": ids, "attention_mask": (np.arange(longest) < lengths[:, None]) * 1}
        )
        states = self.network(**inputs).last_hidden_state.float()
        pooled = pool_tokens(states, inputs["attention_mask"], self.network.config)
        return functional.normalize(pooled, dim=1)


def adapt_contrastively(
    config: ContrastiveConfig,
    encoder: Annotated[
        str | Path,
        Doc("encoder to adapt: a folder that model.origin wrote, or one of model.pretrain"),
    ],
    corpus: Annotated[
        Sequence[str | Path], Doc("folders that corpus_job wrote; their pretrain splits give pairs")
    ],
    output: Annotated[str | Path, Doc("folder for checkpoints, metrics.jsonl and the encoder")],
    resources: TrainingResources = ALL_CORES,
    *,
    yields: Annotated[bool, Doc("on a CPU, take what other jobs leave of the cores")] = False,
) -> ContrastiveResult:
    """Adapt an encoder by contrast; continue from the last checkpoint, if there is one.

    The encoder goes to `output/encoder`. How many threads there are changes no byte. Raise
    UserError where there are too few pairs, or the folder has no encoder that can be adapted. A
    SIGTERM ends it with a checkpoint and exit status 143.
    """
    processes = resources.processes or 1
    # this process starts the others, and is none of them
    if processes > 1 and "RANK" not in os.environ:
        check_processes(resources.device, processes)
        run = partial(adapt_contrastively, config, encoder, corpus, output, resources)
        return ContrastiveResult(**run_processes(run, processes))
    threads = resources.threads or max(1, (os.cpu_count() or 1) // processes)
    device = open_device(resources.device, config.precision)
    try:
        with share_cores(device.kind, threads, yields) as map_parts:
            corpora = [Path(one) for one in corpus]
            return _adapt(config, Path(encoder), corpora, Path(output), device, map_parts)
    finally:
        device.close()


def _adapt(
    config: ContrastiveConfig,
    encoder: Path,
    corpora: Sequence[Path],
    output: Path,
    device: Device,
    map_parts: Map,
) -> ContrastiveResult:
    network, tokenizer = load_network(encoder), load_tokenizer(str(encoder))
    limits = (count_positions(network.config), getattr(network.config, TRAINED_LENGTH, None))
    limit = min((one for one in limits if one), default=config.body_tokens)
    lengths = {n: min(getattr(config, n), limit) for n in ("title_tokens", "body_tokens")}
    config = config.replace(**lengths)
    pairs = read_pairs(corpora, config.body_tokens)
    reasons = ", ".join(f"{n} {reason}" for reason, n in pairs.left_out.most_common())
    require(
        len(pairs) >= MIN_PAIRS,
        f"{', '.join(map(str, corpora))}: {len(pairs)} pairs of title and body in the pretrain "
        f"split (left out: {reasons}); contrastive adaptation needs {MIN_PAIRS}: leave it out",
    )
    batch = min(config.batch, len(pairs)) // device.world_size * device.world_size
    require(batch, f"{device.world_size} processes cannot share it", "batch", config.batch)
    epochs = config.epochs or min(MAX_EPOCHS, math.ceil(SEEN_PAIRS / len(pairs)))
    texts = Texts(
        tokenize(tokenizer, pairs.titles, config.title_tokens),
        tokenize(tokenizer, pairs.bodies, config.body_tokens),
        pairs.number_titles(),
    )
    steps = epochs * (len(pairs) // batch)
    identity = {
        "contrastive": CONTRASTIVE_VERSION,
        **{n: v for n, v in config.model_dump().items() if n not in FREE_CONTRASTIVE_SETTINGS},
        "epochs": epochs,
        "encoder": hash_file(encoder / "model.safetensors"),
        "pairs": texts.hash(),
    }
    make_writable_folder("output", output)
    checkpoints = Checkpoints(output / "checkpoints", config.keep_checkpoints, identity)
    contrast = Contrast(config, network, texts, device, steps, batch, map_parts, checkpoints)
    start = describe_start(encoder)
    if device.is_rank0:
        write_json(output / "config.json", {"contrastive": identity, "start": start})
    contrast.train(output)

    totals, folder = contrast.totals, output / "encoder"
    result = ContrastiveResult(
        encoder=str(folder),
        pairs=len(pairs),
        reviews=pairs.reviews,
        left_out={str(reason): n for reason, n in pairs.left_out.items()},
        epochs=epochs,
        steps=totals.step,
        tokens=totals.tokens,
        loss=totals.loss,
        accuracy=totals.accuracy,
        seconds=round(totals.seconds, 3),
        cpu_seconds=round(totals.cpu_seconds, 3),
        peak_memory_mb=round(device.measure_memory_mb()),
        parameters=sum(p.numel() for p in network.parameters()),
        device=device.kind,
        precision="bf16" if device.bf16 else "fp32",
    )
    if device.is_rank0:
        card = render_template(
            "contrastive_card.md.j2",
            front_matter=render_front_matter(start),
            start=start,
            result=result,
            origin_fields=ORIGIN_FIELDS,
            settings=json.dumps(config.model_dump(), indent=1),
        )
        write_encoder(network, encoder, folder, card)
        write_json(output / "result.json", asdict(result))
    return result


def load_network(encoder: Path) -> Any:
    """Return the trunk of a folder by transformers' own module, in fp32; no code is ever run."""
    from transformers import AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    way = f"`python -m amazon_electra.model.origin --place {encoder} --output DIR` writes one"
    has_weights = (encoder / "model.safetensors").is_file()
    require(has_weights, f"no model.safetensors there; {way}", "encoder", encoder)
    with refuse(OSError, ValueError, RuntimeError, field="encoder", value=encoder):
        torch.manual_seed(0)  # a pooler that the file lacks is not used, but written
        return AutoModel.from_pretrained(encoder, trust_remote_code=False, dtype=torch.float32)


def write_encoder(network: Any, source: Path, folder: Path, card: str) -> None:
    """Write the source's folder with the trained weights in the place of its own, its head kept."""
    tensors = load_file(source / "model.safetensors")
    inside = f"{network.base_model_prefix}."
    trained = {n: t.detach().float().cpu().contiguous() for n, t in network.state_dict().items()}
    prefixed = any(name.startswith(inside) for name in tensors)
    for name, tensor in trained.items():
        key = f"{inside}{name}" if prefixed else name
        # a pooler is drawn where the file lacks one, and no encoder needs it
        if key in tensors or not name.startswith("pooler."):
            tensors[key] = tensor.clone()
    config = json.loads((source / "config.json").read_text("utf-8"))
    length = config.get(TRAINED_LENGTH) or count_positions(network.config) or 512
    config |= {TRAINED_LENGTH: length, "dtype": "float32"}
    with write_folder(folder, source, card) as temporary:
        write_json(temporary / "config.json", config)
        save_file(tensors, temporary / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    from amazon_electra.beam_jobs.core.command_line import run_as_command

    run_as_command(adapt_contrastively)
