"""The errors that say how a job ended: the user's mistake, for good, or until another attempt; and
which errors of others another attempt may not meet.
"""

NETWORK_ERRORS = {
    "ClientConnectorDNSError",
    "ClientConnectorError",
    "ConnectTimeoutError",
    "ConnectionClosedError",
    "EndpointConnectionError",
    "IncompleteRead",
    "ReadTimeoutError",
    "ServerDisconnectedError",
    "ServerTimeoutError",
}


class UserError(ValueError):
    """Only the user can put this right; the message names file, line or option, and the remedy."""


class JobFailed(RuntimeError):
    """The job cannot go on, through no fault of the user; the message says all there is to know."""


class TransientError(JobFailed):
    """A disk, a network or a worker failed, so that the same command may succeed when run again."""


def is_network_error(error: BaseException) -> bool:
    """Return whether a second attempt may not meet this error of Python, botocore or aiohttp."""
    return (
        isinstance(error, ConnectionError | TimeoutError | TransientError)
        or type(error).__name__ in NETWORK_ERRORS
    )
