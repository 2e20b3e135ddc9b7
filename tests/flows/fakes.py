"""A stage of any kind that no job makes, for tests of what reads its manifest."""

from collections.abc import Mapping
from typing import Any

from amazon_electra.flows.store.stage import ExistingStage, Stage


class FakeStage(ExistingStage):
    """Made of whatever a test says; `known` is its fingerprint where nothing else decides it."""

    def __init__(
        self,
        name: str,
        version: int = 0,
        parameters: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Stage] | None = None,
        known: str = "",
        **more: Any,
    ) -> None:
        Stage.__init__(self, dict(parameters or {}), inputs or {}, **more)
        vars(self).update(name=name, version=version)
        if known:
            vars(self)["fingerprint"] = known

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.config
