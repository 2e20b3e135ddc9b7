"""Reads and changes MLflow's registry: versions of the model, and which of them is the champion."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.model_folder.config import shorten_task
from amazon_electra.model.tracking.mlflow_client import (
    create_client,
    hide_credentials,
    is_new_database,
)

REGISTERED = "amazon-electra"
"""Prefix of the names of models in the registry."""
NOT_FOUND = {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}
"""MLflow's answers for a model, version or alias that does not exist."""
SHORTEST_FINGERPRINT = 6
"""Digits; fewer are taken for the number of a version."""


def name_model(task: str) -> str:
    """Return the name of a task's model in the registry, for example `amazon-electra-stars`."""
    return f"{REGISTERED}-{shorten_task(task)}"


def list_registries(uri: str) -> list["Registry"]:
    """Return the registered models of all tasks; RegistryAway where MLflow does not answer."""
    if is_new_database(uri):
        return []
    first = Registry(uri)
    return [Registry(uri, name) for name in first.list_names()]


class RegistryAway(ConnectionError):
    """MLflow did not answer, so that nothing is known of the registry."""


class Registry:
    """A task's registered model: versions, aliases `champion` and `challenger`. Methods raise
    RegistryAway where MLflow does not answer; looking for an alias makes no database.
    """

    def __init__(self, uri: str, name: str = REGISTERED):
        self.uri, self.name = uri, name

    @property
    def task(self) -> str:
        """The task as `--task` takes it."""
        return self.name.removeprefix(f"{REGISTERED}-")

    def format_promotion(self, version: str) -> str:
        """Return the command that makes a version the champion."""
        return f"amazon-electra promote {version} --task {self.task}"

    @cached_property
    def _client(self) -> Any:
        return create_client(self.uri)

    def add_version(self, run_id: str, artifact: str, tags: Mapping[str, str]) -> str:
        """Register an artifact of a run as a version, the same `tags` once; return its number."""
        with self._translate_errors():
            if not self._client.list_artifacts(run_id, artifact):
                raise RegistryAway(f"MLflow at {hide_credentials(self.uri)} has no files of it")
            if self._get_or_none(lambda: self._client.get_registered_model(self.name)) is None:
                about = f"Classifiers of the task {self.task}: `score` takes the champion"
                self._client.create_registered_model(self.name, description=about)
            for known in self._list_versions():
                if all(known.tags.get(name) == value for name, value in tags.items()):
                    return str(known.version)
            source = f"{self._client.get_run(run_id).info.artifact_uri}/{artifact}"
            return str(
                self._client.create_model_version(self.name, source, run_id, dict(tags)).version
            )

    def get_by_alias(self, alias: str) -> dict[str, str]:
        """Return tags, version and source of the one with the alias; empty where none has it."""
        if is_new_database(self.uri):
            return {}
        with self._translate_errors():
            known = self._get_or_none(
                lambda: self._client.get_model_version_by_alias(self.name, alias)
            )
        if known is None:
            return {}
        return {**known.tags, "version": str(known.version), "source": str(known.source)}

    def pin_version(self, alias: str | None, number: str | None) -> tuple[str, str]:
        """Return number and run of the version with an alias or number; ValueError for none."""
        with self._translate_errors():
            version = self._get_version(alias, number)
        return str(version.version), str(version.run_id)

    def _get_version(self, alias: str | None, number: str | None) -> Any:
        if alias:
            return self._client.get_model_version_by_alias(self.name, alias)
        return self._client.get_model_version(self.name, number)

    def copy_model(self, alias: str | None, number: str | None, folder: Path) -> tuple[Path, str]:
        """Copy the artifacts of a version; return where, and its number. ValueError if gone."""
        from mlflow.artifacts import download_artifacts, list_artifacts

        with self._translate_errors():
            version = self._get_version(alias, number)
            place = {"artifact_uri": version.source, "tracking_uri": self.uri}
            try:
                if not list_artifacts(**place):
                    raise FileNotFoundError(version.source)
                copied = download_artifacts(**place, dst_path=str(folder))
            except OSError as error:
                cause = hide_credentials(str(error))
                raise ValueError(f"its artifacts are not there ({cause})") from None
        return Path(copied), str(version.version)

    def get_tags(self, version: str) -> dict[str, str]:
        with self._translate_errors():
            return dict(self._client.get_model_version(self.name, version).tags)

    def find_newest(self) -> dict[str, str]:
        """Return tags and number of the newest version with a model; empty where there is none."""
        with self._translate_errors():
            known = [one for one in self._list_versions() if one.tags.get("model")]
        newest = max(known, key=lambda one: int(one.version), default=None)
        return {**newest.tags, "version": str(newest.version)} if newest else {}

    def list_tags(self) -> list[dict[str, str]]:
        """Return the tags of every version."""
        with self._translate_errors():
            return [dict(known.tags) for known in self._list_versions()]

    def list_names(self) -> list[str]:
        """Return the names of the registered models that begin with this one's."""
        with self._translate_errors():
            found = self._client.search_registered_models(f"name LIKE '{self.name}%'")
        return sorted(model.name for model in found)

    def list_aliases(self) -> list[str]:
        """Return the aliases that versions have."""
        if is_new_database(self.uri):
            return []
        with self._translate_errors():
            model = self._get_or_none(lambda: self._client.get_registered_model(self.name))
        return sorted(model.aliases) if model else []

    def set_tag(self, version: str, name: str, value: str) -> None:
        """Set a tag of a version; an empty value removes it."""
        with self._translate_errors():
            if value:
                self._client.set_model_version_tag(self.name, version, name, value)
            else:
                self._client.delete_model_version_tag(self.name, version, name)

    def promote(self, version: str, reason: str) -> None:
        """Make a version the champion."""
        if self.get_by_alias("champion").get("version", "") == version:
            return
        self.set_tag(version, "reason", reason)
        self.set_tag(version, "set_aside", "")
        with self._translate_errors():
            self._client.set_registered_model_alias(self.name, "champion", version)
            if self.get_by_alias("challenger").get("version") == version:
                self._client.delete_registered_model_alias(self.name, "challenger")

    def set_challenger(self, version: str, reason: str) -> None:
        """Give a version the alias `challenger`, and tag it with the reason."""
        self.set_tag(version, "reason", reason)
        with self._translate_errors():
            self._client.set_registered_model_alias(self.name, "challenger", version)

    def resolve_version(self, version: str) -> str:
        """Return the number of a version, given that or its encoder's fingerprint; ValueError."""
        with self._translate_errors():
            encoders = {str(k.version): k.tags.get("encoder", "") for k in self._list_versions()}
        if version in encoders:
            return version
        matches = [number for number, encoder in encoders.items() if encoder.startswith(version)]
        if len(version) < SHORTEST_FINGERPRINT or len(matches) != 1:
            numbers = ", ".join(sorted(matches or encoders, key=int)) or "none"
            raise ValueError(f"no version {version!r} of {self.name}; write one of {numbers}")
        return matches[0]

    def _list_versions(self) -> list[Any]:
        return list(self._client.search_model_versions(f"name = '{self.name}'"))

    def _get_or_none(self, request: Callable[[], Any]) -> Any:
        """Return the answer to a request; None where the registry has no such thing."""
        from mlflow.exceptions import MlflowException

        try:
            return request()
        except MlflowException as error:
            if error.error_code not in NOT_FOUND:
                raise
            return None

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise RegistryAway where MLflow did not answer, ValueError where it refused."""
        from mlflow.exceptions import MlflowException

        try:
            yield
        except MlflowException as error:
            kind = ValueError if error.error_code in NOT_FOUND else RegistryAway
            cause = hide_credentials(str(error)).splitlines()[0]
            raise kind(
                f"the registry of MLflow at {hide_credentials(self.uri)}: {cause}"
            ) from error


NEWEST = "the newest; none is champion"


def find_models(uri: str, alias: str | None, task: str | None = None) -> list[dict[str, str]]:
    """Return tags and number of each task's version with an alias, and its `role`; without one of
    its champion, or else of its newest version. UserError for none.
    """
    every = list_registries(uri)
    if task:
        every = [one for one in every if one.name == name_model(task)]
        if not every:
            names = ", ".join(one.task for one in list_registries(uri)) or "none"
            raise UserError(f"no model of it is registered, of others: {names}", "model.task", task)
    found = []
    for one in every:
        known = one.get_by_alias(alias or "champion")
        if known.get("model"):
            found.append(known | {"role": alias or "champion"})
        elif not alias and (newest := one.find_newest()):
            found.append(newest | {"role": NEWEST})
    require(found or alias, "no model is registered; `amazon-electra run` registers one", "model")
    if not found:
        there = ", ".join(dict.fromkeys(name for one in every for name in one.list_aliases()))
        way = "`amazon-electra promote VERSION` makes one champion"
        raise UserError(f"no model has it, others: {there or 'none'}; {way}", "model.alias", alias)
    return found
