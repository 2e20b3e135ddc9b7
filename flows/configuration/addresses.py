"""Addresses that users and events give: of which kinds, on which hosts, and without secrets.

They are shown, logged and kept with every result, so no secret may be in one. A server opens them
for whoever can fill in a form, so they may not lead into the network behind it unless a setting
says so.
"""

import ipaddress
import os
import re
import socket
import threading
from contextlib import suppress
from typing import Annotated, LiteralString
from urllib.parse import urlsplit

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from beam_jobs.job.errors import TransientError, UserError

SECRET: LiteralString = "secret"
"""Kind of the error whose input is not to be shown."""
SECRET_PARAMETER = re.compile(
    r"[?&;#](x-(amz|goog)-(signature|credential|security-token)|sig|signature|\w*token|jwt"
    r"|pwd|pass|\w*passwo?r?d|\w*secret|auth|authorization|\w*credentials?"
    r"|(\w*(api|access)[_-]?)?key([_-]?id)?)=",
    re.IGNORECASE,
)
"""Parameters of an address by which servers know who asks."""
USER_SCHEMES = ("abfs", "abfss", "ssh", "sftp")
"""Kinds in which a name without a password may stand before an @: Azure's container, a user."""
SCHEMES = ("file", "http", "https", "s3", "gs", "az", "abfs", "abfss")
"""Kinds of addresses that are opened; the last three are Azure's names of the same."""
SCHEMES_VARIABLE = "AMAZON_ELECTRA_ADDRESS_SCHEMES"
"""Environment variable with further kinds that fsspec knows, separated by commas."""
PRIVATE_HOSTS_VARIABLE = "AMAZON_ELECTRA_PRIVATE_HOSTS"
"""Environment variable with the hosts of private networks that may be read from."""

SERVICE_HOSTS = {"gs": "storage.googleapis.com", "s3": "s3.amazonaws.com"}
"""Hosts by which object stores are reached, unless a variable names another route."""
OTHER_ROUTE = r"(?i)ENDPOINT|EMULATOR_HOST|^(https?|all)_proxy$"
RESOLVE_SECONDS = 5.0


def _check_address(address: str) -> str:
    """Return the address; raise an error that pydantic shows if it is not one to be opened."""
    if has_secret(address):
        raise PydanticCustomError(
            SECRET,
            "an address with a password or a signature in it; addresses are kept with every "
            "result, so give these to the store's package: s3 reads AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, gs GOOGLE_APPLICATION_CREDENTIALS, abfs "
            "AZURE_STORAGE_ACCOUNT_KEY; of other servers download the file first",
        )
    if why := explain_refusal(address):
        raise ValueError(why)
    return address


Address = Annotated[str, AfterValidator(_check_address)]


def has_secret(address: str) -> bool:
    """Return whether a password, a token or a signature stands in an address.

    A slash in a password ends what looks like the host (`u:12/34@host/x`); an @ in a path after a
    port is none if no further folder follows it.
    """
    scheme, separator, rest = address.partition("://")
    if not separator:
        return False
    if "::" in rest and any(has_secret(part) for part in rest.split("::")[1:]):
        return True
    host, _, path = rest.partition("/")
    user, at, _ = host.rpartition("@")
    if at:
        return ":" in user or scheme.lower() not in USER_SCHEMES or has_secret_parameter(rest)
    _, colon, port = host.partition(":")
    if colon and "@" in path:
        is_port = port.isdecimal() and scheme.lower() not in ("s3", "gs")
        if not is_port or "/" in path.partition("@")[2]:
            return True
    return has_secret_parameter(rest)


def has_secret_parameter(text: str) -> bool:
    """Return whether one of the parameters of an address is a secret."""
    return SECRET_PARAMETER.search(text) is not None


def explain_refusal(address: str) -> str:
    """Return why an address of this kind is not opened, or an empty text if it is."""
    if "://" not in address:
        return ""
    if "::" in address.split("[")[0]:
        return "chained addresses (a::b) are not opened; download the file first"
    scheme = address.partition("://")[0].lower()
    allowed = [*SCHEMES, *_read_names(SCHEMES_VARIABLE)]
    if scheme not in allowed:
        return (
            f"{scheme}:// addresses are not opened, only {', '.join(allowed)}; "
            f"{SCHEMES_VARIABLE}={scheme} allows them"
        )
    return ""


def check_host(address: str, setting: str) -> None:
    """Raise an error unless the host of an address is known, and not one of a private network.

    Loopback and link-local addresses are private too, as is every name that resolves to one: then
    it is a UserError. A name that cannot be resolved is a TransientError at once: the packages of
    the stores try for a minute.
    """
    parts = urlsplit(address)
    is_web = parts.scheme in ("http", "https")
    name = ((parts.hostname if is_web else SERVICE_HOSTS.get(parts.scheme)) or "").lower()
    if not name or name in _read_names(PRIVATE_HOSTS_VARIABLE):
        return
    if not is_web and any(re.search(OTHER_ROUTE, variable) for variable in os.environ):
        return
    ips = _resolve_name(name)
    if not ips and not any(re.search(OTHER_ROUTE, variable) for variable in os.environ):
        raise TransientError(
            f"{setting} {address} cannot be reached: no address of {name} was found within "
            f"{RESOLVE_SECONDS:.0f} s; is this machine connected to the network?"
        )
    for ip in ips if is_web else ():
        if not ipaddress.ip_address(ip.split("%")[0]).is_global:
            raise UserError(
                f"{setting} {address}: {name} is {ip}, on this machine or in a private network; "
                f"{PRIVATE_HOSTS_VARIABLE}={name} allows it"
            )


def _resolve_name(name: str) -> list[str]:
    """Return the addresses of a host; none if they are not known in time."""
    ips: list[str] = []

    def resolve() -> None:
        with suppress(OSError, UnicodeError):
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            ips.extend(str(where[0]) for *_, where in found)

    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(RESOLVE_SECONDS)
    return list(ips)


def _read_names(variable: str) -> list[str]:
    names = os.environ.get(variable, "").split(",")
    return [name.strip().lower() for name in names if name.strip()]
