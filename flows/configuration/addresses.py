"""Addresses that users and events give: their kinds, without secrets.

They are shown, logged and kept with every result, so no secret may be in one. On which hosts they
may lie: beam_jobs/core/hosts.py.
"""

import re
from typing import Annotated
from urllib.parse import unquote

from fsspec import available_protocols
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from amazon_electra.beam_jobs.core.settings import SECRET

SECRET_PARAMETER = re.compile(
    r"[?&;#](x-(amz|goog)-(signature|credential|security-token)|sig|signature|\w*token|jwt"
    r"|pwd|pass|\w*passwo?r?d|\w*secret|auth|authorization|\w*credentials?"
    r"|(\w*(api|access)[_-]?)?key([_-]?id)?|rlkey|auth[_-]?key|code|[\w-]*subscription-?key|hmac"
    r"|session([_-]?id)?|pat|pw)=",
    re.IGNORECASE,
)
"""Parameters of an address by which servers know who asks."""
USER_SCHEMES = ("abfs", "abfss", "ssh", "sftp")
"""Kinds in which a name without a password may stand before an @: Azure's container, a user."""


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
    """Return whether one of the parameters of an address is a secret; its name may be encoded."""
    while (decoded := unquote(text)) != text and not SECRET_PARAMETER.search(text):
        text = decoded
    return SECRET_PARAMETER.search(text) is not None


def explain_refusal(address: str) -> str:
    """Return why an address of this kind is not opened, or an empty text if it is."""
    if "://" not in address:
        return ""
    if "::" in address.split("[")[0]:
        return "chained addresses (a::b) are not opened; download the file first"
    scheme = address.partition("://")[0].lower()
    return "" if scheme in available_protocols() else f"fsspec knows no {scheme}:// addresses"
