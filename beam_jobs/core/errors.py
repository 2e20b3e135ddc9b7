"""The errors that say how a job ended: the user's mistake, for good, or until another attempt; and
which errors of others another attempt may not meet.
"""

import errno
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

NETWORK_ERRORS = {
    *("BrokenPipeError", "ChunkedEncodingError", "ClientConnectorDNSError", "ClientConnectorError"),
    *("ClientOSError", "ClientPayloadError", "ConnectError", "ConnectTimeout"),
    *("ConnectTimeoutError", "ConnectionAbortedError", "ConnectionClosedError", "ConnectionError"),
    *("ConnectionRefusedError", "ConnectionResetError", "EndpointConnectionError"),
    *("IncompleteRead", "ProxyError", "ReadTimeout", "ReadTimeoutError", "RemoteDisconnected"),
    *("RemoteProtocolError", "ServerDisconnectedError", "ServerTimeoutError", "ServiceUnavailable"),
    *("TimeoutError", "TooManyRequests", "TransportError"),
}
"""Of Python, botocore, aiohttp, requests, httpx and google.auth; a 502 of gs:// is ProxyError."""
AWAY_STATUSES = {408, 429, *range(500, 600)}  # answers of a server that may answer a later request
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class UserError(ValueError):
    """Only the user can put this right; the message names file, line or field, and the remedy.

    `field` is the path of the config field that is wrong, if one is, and `value` what it was given.
    """

    def __init__(self, message: str, field: str = "", value: Any = None) -> None:
        super().__init__(f"{name_setting(field, value)}: {message}" if field else message)
        self.message, self.field, self.value = message, field, value

    def describe(self) -> dict[str, Any]:
        """Return its arguments, as JSON takes them to another process."""
        value = None if self.value is None else [format_value(one) for one in listed(self.value)]
        return {"message": self.message, "field": self.field, "value": value}


def require(holds: object, message: str, field: str = "", value: Any = None) -> None:
    if not holds:
        raise UserError(message, field, value)


@contextmanager
def refuse(
    *kinds: type[Exception], message: str = "{}", field: str = "", value: Any = None
) -> Iterator[None]:
    """Raise errors of others inside the block as UserError, with their cause in one line for {}."""
    try:
        yield
    except kinds as error:
        cause = " ".join(str(error).split())[:160]
        raise UserError(message.replace("{}", cause), field, value) from None


def name_setting(field: str, value: Any = None) -> str:
    """Return a field of a config with its value, if it has one, as a command line takes it."""
    if value is None:
        return field
    text = shlex.join(map(format_value, listed(value)))
    return f"{field}={text}" if text.startswith("-") else f"{field} {text}"


def show_option(option: str, value: Any) -> str:
    return f"`{name_setting(option, value)}`"


def listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def format_value(value: Any) -> str:
    """Return a value as a command line takes it; a list as `a,b`."""
    if isinstance(value, list | tuple):
        return ",".join(map(format_value, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


class JobFailed(RuntimeError):
    """The job cannot go on, through no fault of the user; the message says all there is to know."""


class TransientError(JobFailed):
    """A disk, a network or a worker failed, so that the same command may succeed when run again."""


def is_network_error(error: BaseException) -> bool:
    """Return whether a second attempt may succeed: no connection, or an error of the server."""
    return (
        isinstance(error, ConnectionError | TimeoutError | TransientError)
        or type(error).__name__ in NETWORK_ERRORS
        or read_status(error) in AWAY_STATUSES
    )


def read_status(error: BaseException) -> int:
    """Return the status of HTTP of an answer that s3fs or gcsfs made this error of, or 0."""
    answer = getattr(error.__cause__ or error, "response", None)
    if isinstance(answer, dict):
        return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = getattr(error, "code", 0)
    return code if isinstance(code, int) else 0


def is_refusal(error: BaseException) -> bool:
    """Return whether a store refused a request for want of rights; gcsfs has no class for that."""
    if isinstance(error, OSError) and error.errno is not None:
        return False
    is_forbidden = isinstance(error, OSError) and str(error).startswith("Forbidden: ")
    return isinstance(error, PermissionError) or is_forbidden or read_status(error) in (401, 403)


def describe_error(error: BaseException) -> str:
    """Return what an error says, in one line; its kind if it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
