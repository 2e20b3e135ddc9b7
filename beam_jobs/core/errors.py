"""The errors that say how a job ended: the user's mistake, for good, or until another attempt; and
which errors of others another attempt may not meet.
"""

import errno

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
ProxyError. By name, as a job in another process or on another host tells no more.
"""
AWAY_STATUSES = {408, 429, *range(500, 600)}
"""Answers of a server that may answer a later request."""
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class UserError(ValueError):
    """Only the user can put this right; the message names file, line or option, and the remedy."""


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
