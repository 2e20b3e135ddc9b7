"""Downloads a model from the hub into the hub's cache on this machine, and reports its progress."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from beam_jobs.job.errors import TransientError
from beam_jobs.job.progress import Progress, track_progress
from model.published.architecture import Fail

KILOBYTE = 1000
MOST_RESTARTS = 3
"""How often a file may be begun anew in one call, where the server cannot go on in its middle."""


OF_NETWORK = (ConnectionError, TimeoutError)


class BrokenOff(Exception):
    """The server ends files early, again and again."""


def download_model(
    name: str, revision: str | None, patterns: tuple[Sequence[str], Sequence[str]], fail: Fail
) -> Path:
    """Return the folder of a model in the cache, downloaded first if need be; the folder is called
    as its commit.

    `patterns` are the files that are wanted, and those for a model that has no weights among them.
    """
    from huggingface_hub import snapshot_download

    wanted, others = patterns
    with _translate_errors(name, revision, fail), Download(name) as download:
        bars = download.build_bar_class()
        folder = Path(
            snapshot_download(name, revision=revision, allow_patterns=list(wanted), tqdm_class=bars)
        )
        if not any(folder.glob("model*.safetensors")):
            snapshot_download(
                name, revision=folder.name, allow_patterns=list(others), tqdm_class=bars
            )
    return folder


class Download:
    """Reports how many bytes have come, as soon as some have."""

    def __init__(self, name: str) -> None:
        self._name, self._lock = name, RLock()
        self._progress: Progress | None = None
        self._restarts = 0

    def __enter__(self) -> "Download":
        return self

    def __exit__(self, *error: Any) -> None:
        if self._progress:
            self._progress.__exit__(*error)

    def show(self, done: int, total: int) -> None:
        """Report bytes."""
        with self._lock:
            if self._progress is None:
                self._progress = track_progress(None, "kB", f"download {self._name}", done=0)
                self._progress.__enter__()
            self._progress.total = max(total, done) // KILOBYTE or None
            self._progress.update(done // KILOBYTE)

    def count_restart(self) -> None:
        """Count a file that is begun anew; raise BrokenOff when that goes on without end."""
        self._restarts += 1
        if self._restarts > MOST_RESTARTS:
            raise BrokenOff

    def build_bar_class(self) -> type[Any]:
        """Return the class of the hub's bars, which show nothing and report here.

        The hub adds up the bytes of all files in one bar, of which older versions have one, newer
        ones two; other bars count files.
        """
        from huggingface_hub.utils import tqdm

        download = self

        class Bar(tqdm):
            def __init__(self, *words: Any, **settings: Any) -> None:
                self.counts_bytes = settings.get("unit") == "B"
                super().__init__(*words, **settings | {"disable": True})

            def update(self, n: float | None = 1) -> None:
                if not self.counts_bytes or not n:
                    return
                self.n += n
                if n < 0:
                    download.count_restart()
                download.show(int(self.n), int(self.total or 0))

            @property
            def format_dict(self) -> dict[str, Any]:
                return {"rate": None}

        return Bar


@contextmanager
def _translate_errors(name: str, revision: str | None, fail: Fail) -> Iterator[None]:
    """Raise one line that says what to do where the hub does not give a model."""
    from huggingface_hub import constants, errors

    away = (
        "the hub cannot be reached, and its cache on this machine has no such model; on a "
        f"machine with a network run `hf download {name} --local-dir DIR`, copy DIR here and "
        "give it instead"
    )
    try:
        yield
    except errors.GatedRepoError:
        raise fail(
            "the hub gives it to signed-in users only: accept its terms there, then set HF_TOKEN"
        ) from None
    except errors.RepositoryNotFoundError:
        raise fail(f"the hub has no model {name} (or it is private: set HF_TOKEN)") from None
    except errors.RevisionNotFoundError:
        raise fail(f"{name} has no revision {revision} on the hub") from None
    except (
        errors.LocalEntryNotFoundError,
        errors.OfflineModeIsEnabled,
        errors.HfHubHTTPError,
    ):
        is_offline = bool(constants.HF_HUB_OFFLINE)
        raise (fail(away) if is_offline else TransientError(str(fail(away)))) from None
    except (BrokenOff, find_transport_error(), OSError) as error:
        is_of_network = isinstance(error, OF_NETWORK)
        if not is_of_network and getattr(error, "errno", None) is not None:  # as of a full disk
            raise
        raise TransientError(str(fail(f"{_explain_break(error)}; run the same again"))) from None


def find_transport_error() -> type[Exception]:
    """Return the error of what the hub's client sends its requests with: httpx in some versions,
    httpx2 in others, requests in old ones.
    """
    from huggingface_hub import errors

    return next(base for base in errors.HfHubHTTPError.__mro__ if base.__name__ == "HTTPError")


def _explain_break(error: BaseException) -> str:
    """Return in a line why a download did not come to its end."""
    why = (str(error).splitlines() or [""])[0] or "the server ends its answers early"
    return f"the download from the hub broke off ({why})"
