"""The registry of MLflow: versions of the model, which of them is the champion, and whom it replaced."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from model.tracking import client_of, public

REGISTERED = "amazon-electra"  # name of the model in the registry
NONE = {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}  # no such model or version, no such alias
SHORTEST_FINGERPRINT = 6  # digits: fewer are taken for the number of a version


class RegistryAway(ConnectionError):
    """MLflow did not answer: what the registry holds is not known."""


class Registry:
    """The registered model: versions, the alias `champion`, and `challenger` for one that was not better.

    Every method raises RegistryAway where MLflow does not answer.
    """

    def __init__(self, uri: str, name: str = REGISTERED):
        self.uri, self.name, self._client = uri, name, client_of(uri)

    def add(self, run_id: str, artifact: str, tags: Mapping[str, str]) -> str:
        """A version made of an artifact of a run; the same content (`tags`) is registered once. Its number."""
        with self._asking():
            if self._or_none(lambda: self._client.get_registered_model(self.name)) is None:
                self._client.create_registered_model(self.name)
            for known in self._versions():
                if all(known.tags.get(name) == value for name, value in tags.items()):
                    return str(known.version)
            source = f"{self._client.get_run(run_id).info.artifact_uri}/{artifact}"
            return str(self._client.create_model_version(self.name, source, run_id, dict(tags)).version)

    def having(self, alias: str) -> dict[str, str]:
        """Version and tags of the one that has the alias; empty where none has."""
        with self._asking():
            found = self._or_none(lambda: self._client.get_model_version_by_alias(self.name, alias))
        return {**found.tags, "version": str(found.version), "source": str(found.source)} if found else {}

    def tags(self, version: str) -> dict[str, str]:
        with self._asking():
            return dict(self._client.get_model_version(self.name, version).tags)

    def note(self, version: str, name: str, value: str) -> None:
        """Keeps a tag with a version."""
        with self._asking():
            self._client.set_model_version_tag(self.name, version, name, value)

    def promote(self, version: str, reason: str) -> None:
        """Makes a version the champion, and notes whom it replaced, for `rollback`."""
        champion = self.having("champion").get("version", "")
        if champion == version:
            return
        self.note(version, "replaced", champion)
        self.note(version, "reason", reason)
        self.note(version, "rolled_back", "")
        with self._asking():
            self._client.set_registered_model_alias(self.name, "champion", version)
            if self.having("challenger").get("version") == version:
                self._client.delete_registered_model_alias(self.name, "challenger")

    def challenge(self, version: str, reason: str) -> None:
        self.note(version, "reason", reason)
        with self._asking():
            self._client.set_registered_model_alias(self.name, "challenger", version)

    def rollback(self) -> tuple[str, str]:
        """Gives the alias back to whom the champion replaced: (from, to). ValueError where that cannot be."""
        champion = self.having("champion")
        before = champion.get("replaced", "")
        if not before:
            raise ValueError("there is no champion, or it replaced nobody: nothing to go back to")
        with self._asking():
            if self._or_none(lambda: self._client.get_model_version(self.name, before)) is None:
                raise ValueError(
                    f"version {before}, which the champion replaced, was deleted from the registry; "
                    "name another one: amazon-electra promote VERSION"
                )
            self._client.set_registered_model_alias(self.name, "champion", before)
        self.note(champion["version"], "rolled_back", f"to version {before}")
        return champion["version"], before

    def find(self, version: str) -> str:
        """The number of a version given by its number or by how the fingerprint of its encoder begins.

        ValueError where there is none, or more than one.
        """
        with self._asking():
            encoders = {str(known.version): known.tags.get("encoder", "") for known in self._versions()}
        if version in encoders:
            return version
        found = [number for number, encoder in encoders.items() if encoder.startswith(version)]
        if len(version) < SHORTEST_FINGERPRINT or not found:
            raise ValueError(
                f"no version {version or '(empty)'} of {self.name}; the MLflow UI lists them under Models. "
                f"Write its number, or at least {SHORTEST_FINGERPRINT} digits of its encoder's fingerprint"
            )
        if len(found) > 1:
            numbers = ", ".join(sorted(found, key=int))
            raise ValueError(f"{version} begins the encoder of the versions {numbers}; write the number of one")
        return found[0]

    def _versions(self) -> list[Any]:
        return list(self._client.search_model_versions(f"name = '{self.name}'"))

    def _or_none(self, asked: Any) -> Any:
        """What was asked for; None where the registry says that it has no such thing."""
        from mlflow.exceptions import MlflowException

        try:
            return asked()
        except MlflowException as error:
            if error.error_code not in NONE:
                raise
            return None

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Tells a registry that did not answer from one that said no."""
        from mlflow.exceptions import MlflowException

        try:
            yield
        except MlflowException as error:
            if error.error_code in NONE:
                raise ValueError(f"the registry of MLflow: {public(error.message)}") from error
            said = public(str(error)).splitlines()[0]
            raise RegistryAway(f"MLflow at {public(self.uri)} did not answer for the registry: {said}") from error
