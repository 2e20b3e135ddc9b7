"""The store of a command."""

import os
from typing import TYPE_CHECKING, Annotated

from typing_extensions import Doc

if TYPE_CHECKING:  # `--help` does not need it
    from amazon_electra.flows.store.store import Store

StorePlace = Annotated[
    str | None,
    Doc(
        "Folder of the results, or s3://BUCKET/FOLDER or gs://BUCKET/FOLDER; none: "
        "AMAZON_ELECTRA_STORE, else store"
    ),
]


def build_store(place: object = None) -> "Store":
    """Return the store, which need not be there yet."""
    from amazon_electra.flows.store.store import Store

    return Store(str(place or os.environ.get("AMAZON_ELECTRA_STORE") or "store"))
