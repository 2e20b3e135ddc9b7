"""Loads encoders by transformers' own module, AutoModelForMaskedLM: those that ours does not hold.

No code of a folder is ever run.
"""

from pathlib import Path
from typing import Any

import torch

from amazon_electra.model.encoders.places import Fail

MAX_SURPLUS = 1024
"""Rows of a table of vectors beyond the tokenizer's ids: tables are filled up for the speed of
matrix products, and leave room for entries (mDeBERTa-v3: 899).
"""


def load_masked_lm(folder: Path, fail: Fail, seed: int = 0) -> tuple[Any, list[str]]:
    """Return the network of a folder in fp32, and the names of the weights that its file lacks,
    which are drawn by the seed.

    UserError where these are of the trunk.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForMaskedLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network, report = AutoModelForMaskedLM.from_pretrained(
                folder,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                dtype=torch.float32,
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise fail(f"it cannot be loaded ({str(error).splitlines()[0]}); copy it again") from None
    lost = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    lost = {name for name in lost if not name.endswith("position_ids")}
    own = sorted(name for name in lost if name.startswith(f"{network.base_model_prefix}."))
    if own:
        raise fail(
            f"config.json asks for {len(own)} weights that its file lacks or has of another shape, "
            f"the first is {own[0]}; copy both again"
        )
    return network, sorted(lost)


def check_size(network: Any, ids: int, fail: Fail) -> None:
    """Raise UserError where the table of vectors is not that of a tokenizer with so many ids."""
    rows = network.get_input_embeddings().weight.shape[0]
    if not 0 <= rows - ids < MAX_SURPLUS:
        raise fail(f"its tokenizer has {ids} ids, its weights {rows} rows; copy both again")
