"""The errors that say how a job ended: the user's mistake, for good, or until another attempt; and
which errors of others another attempt may not meet.
"""

import ast
import errno
import re
from collections.abc import Callable
from contextlib import suppress
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
"""Names of classes of Python, botocore, aiohttp, requests, httpx and google.auth; a 502 of gs:// is
ProxyError. By name, since a job in another process or on another host passes no more on.
"""
AWAY_STATUSES = {408, 429, *range(500, 600)}  # answers of a server that may answer a later request
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


NAMED = re.compile(r"`([a-z]\w*(?:\.\w+)*)(?:=([^`]+))?`")
"""A setting in a message, as Python writes it: `encoding='cp1252'`, or `encoding` by itself."""


class UserError(ValueError):
    """Only the user can put this right; the message names file, line or field, and the remedy.

    `field` is the path of the config field that is wrong, if one is, and `value` what it was given.
    The text names settings as Python does; a front end spells them its own way (`spell_settings`).
    """

    def __init__(self, message: str, field: str = "", value: Any = None) -> None:
        super().__init__(f"{name_setting(field, value)}: {message}" if field else message)
        self.message, self.field, self.value = message, field, value
        if not field and (named := NAMED.match(message)):  # from another process it comes as text
            self.field = named[1]
            # so that a front end that names it by another path does not name it twice
            if message.startswith(": ", named.end()):
                self.message = message[named.end() + 2 :]
            with suppress(ValueError, SyntaxError):
                self.value = ast.literal_eval(named[2]) if named[2] else None


def name_setting(field: str, value: Any = None) -> str:
    """Return how a message names a field of a config, with its value if there is one."""
    if value is None:
        return f"`{field}`"
    kept = value if isinstance(value, bool | int | float | str | list | tuple) else str(value)
    text = repr(kept).replace("`", r"\x60")
    return f"`{field}={text}`"


def spell_settings(text: str, spell: Callable[[str, Any], str | None]) -> str:
    """Return a message with the settings that it names as a front end has them. `spell` gets a
    field and a value, None where the field is named alone, and returns None for what is no setting.
    """

    def replace(named: re.Match[str]) -> str:
        try:
            value = ast.literal_eval(named[2]) if named[2] else None
        except (ValueError, SyntaxError):
            return named[0]
        return spell(named[1], value) or named[0]

    return NAMED.sub(replace, text)


class JobFailed(RuntimeError):
    """The job cannot go on, through no fault of the user; the message says all there is to know."""


class TransientError(JobFailed):
    """A disk, a network or a worker failed, so that the same command may succeed when run again."""


def is_network_error(error: BaseException) -> bool:
    """Return whether a second attempt may not meet this error of Python or of a store's package:
    no connection, or an error of the server.
    """
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
    """Return whether a store refused a request for want of rights.

    gcsfs has no class for that: it raises OSError("Forbidden: …").
    """
    is_system = isinstance(error, OSError) and error.errno is not None
    return not is_system and (
        isinstance(error, PermissionError)
        or read_status(error) in (401, 403)
        or (isinstance(error, OSError) and str(error).startswith("Forbidden: "))
    )


def describe_error(error: BaseException) -> str:
    """Return what an error says, in one line; its kind if it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
