"""Reads and changes MLflow's registry: versions of the model, and which of them is the champion."""

from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

from amazon_electra.beam_jobs.core.errors import require
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
Method = TypeVar("Method", bound=Callable[..., Any])


def name_model(task: str) -> str:
    """Return the name of a task's model in the registry, for example `amazon-electra-stars`."""
    return f"{REGISTERED}-{shorten_task(task)}"


class RegistryAway(ConnectionError):
    """MLflow did not answer, so that nothing is known of the registry."""


def _translate_errors(method: Method) -> Method:
    """Raise RegistryAway where MLflow did not answer, ValueError where it refused."""

    @wraps(method)
    def call(registry: "Registry", *args: Any) -> Any:
        try:
            return method(registry, *args)
        except Exception as error:
            code = getattr(error, "error_code", None)  # of a MlflowException, whose import is slow
            if code is None:
                raise
            kind = ValueError if code in NOT_FOUND else RegistryAway
            cause = hide_credentials(str(error)).splitlines()[0]
            place = hide_credentials(registry.uri)
            raise kind(f"the registry of MLflow at {place}: {cause}") from error

    return cast(Method, call)


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

    @_translate_errors
    def add_version(self, run_id: str, artifact: str, tags: Mapping[str, str]) -> str:
        """Register an artifact of a run as a version, the same `tags` once; return its number."""
        if not self._client.list_artifacts(run_id, artifact):
            raise RegistryAway(f"MLflow at {hide_credentials(self.uri)} has no files of it")
        if not self._search_models(f"= '{self.name}'"):
            about = f"Classifiers of the task {self.task}: `score` takes the champion"
            self._client.create_registered_model(self.name, description=about)
        for known in self.list_versions():
            if tags.items() <= known.items():
                return known["version"]
        source = f"{self._client.get_run(run_id).info.artifact_uri}/{artifact}"
        made = self._client.create_model_version(self.name, source, run_id, dict(tags))
        return str(made.version)

    @_translate_errors
    def list_aliases(self) -> dict[str, str]:
        """Return the number of the version that has each alias."""
        found = [] if is_new_database(self.uri) else self._search_models(f"= '{self.name}'")
        return {alias: str(version) for one in found for alias, version in one.aliases.items()}

    @_translate_errors
    def get_by_alias(self, alias: str) -> dict[str, str]:
        """Return tags, version and source of the one with the alias; empty where none has it."""
        version = self.list_aliases().get(alias)
        return describe(self._client.get_model_version(self.name, version)) if version else {}

    @_translate_errors
    def list_versions(self) -> list[dict[str, str]]:
        """Return tags, version and source of every version."""
        return [*map(describe, self._client.search_model_versions(f"name = '{self.name}'"))]

    @_translate_errors
    def get_tags(self, version: str) -> dict[str, str]:
        return describe(self._client.get_model_version(self.name, version))

    @_translate_errors
    def set_tag(self, version: str, name: str, value: str) -> None:
        """Set a tag of a version; an empty value removes it."""
        if value:
            self._client.set_model_version_tag(self.name, version, name, value)
        else:
            self._client.delete_model_version_tag(self.name, version, name)

    @_translate_errors
    def promote(self, version: str, reason: str) -> None:
        """Make a version the champion."""
        aliases = self.list_aliases()
        if aliases.get("champion") == version:
            return
        self.set_tag(version, "reason", reason)
        self.set_tag(version, "set_aside", "")
        self._client.set_registered_model_alias(self.name, "champion", version)
        if aliases.get("challenger") == version:
            self._client.delete_registered_model_alias(self.name, "challenger")

    @_translate_errors
    def set_challenger(self, version: str, reason: str) -> None:
        """Give a version the alias `challenger`, and tag it with the reason."""
        self.set_tag(version, "reason", reason)
        self._client.set_registered_model_alias(self.name, "challenger", version)

    @_translate_errors
    def list_tasks(self) -> list["Registry"]:
        """Return the registered models whose names begin with this one's, by name."""
        found = [] if is_new_database(self.uri) else self._search_models(f"LIKE '{self.name}%'")
        return [Registry(self.uri, name) for name in sorted(one.name for one in found)]

    def _search_models(self, condition: str) -> list[Any]:
        return list(self._client.search_registered_models(f"name {condition}"))


def describe(version: Any) -> dict[str, str]:
    """Return tags, number and source of a version."""
    return {**version.tags, "version": str(version.version), "source": str(version.source)}


def list_registries(uri: str) -> list[Registry]:
    """Return the registered models of all tasks; RegistryAway where MLflow does not answer."""
    return Registry(uri).list_tasks()


NEWEST = "the newest; none is champion"


def find_models(uri: str, task: str | None = None) -> list[dict[str, str]]:
    """Return tags, number and `role` of each task's version: its champion, or else the newest."""
    every = list_registries(uri)
    names = ", ".join(one.task for one in every) or "none"
    every = [one for one in every if not task or one.name == name_model(task)]
    why = f"no model of it is registered, of others: {names}"
    require(every or not task, why, "model.task", task)
    found = []
    for one in every:
        role, known = "champion", one.get_by_alias("champion")
        if not known.get("model"):
            newest = [version for version in one.list_versions() if version.get("model")]
            role = NEWEST
            known = max(newest, key=lambda version: int(version["version"]), default={})
        if known.get("model"):
            found.append(known | {"role": role})
    require(found, "no model is registered; `amazon-electra run` registers one", "model")
    return found
