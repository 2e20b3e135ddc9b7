"""Addresses that users and events give; they are kept with every result, without secrets."""

import re
from typing import Annotated
from urllib.parse import unquote

from fsspec import available_protocols
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from amazon_electra.beam_jobs.core.settings import SECRET

SECRET_PARAMETER = re.compile(
    r"[?&;#]([\w-]*(sig|token|jwt|pwd|passw|secret|auth|credential|key|hmac|session)[\w-]*"
    r"|code|pass|pat|pw)=",
    re.IGNORECASE,
)
"""Parameters of an address by which servers may know who asks."""
USER_SCHEMES = ("abfs", "abfss", "ssh", "sftp")
"""Kinds in which a name without a password may stand before an @: Azure's container, a user."""


def check_address(address: str) -> str:
    """Return the address; raise an error that pydantic shows if it is not one to be opened."""
    if has_secret(address):
        raise PydanticCustomError(
            SECRET,
            "an address with a password, a key or a signature in it, and addresses are kept with "
            "every result: give these to the store's package (deploy/README.md), or download it",
        )
    scheme, separator, _ = address.partition("://")
    if separator and "::" in address.split("[")[0]:
        raise ValueError("chained addresses (a::b) are not opened; download the file first")
    if separator and scheme.lower() not in available_protocols():
        raise ValueError(f"fsspec knows no {scheme}:// addresses")
    return address


Address = Annotated[str, AfterValidator(check_address)]


def has_secret(address: str) -> bool:
    """Return whether a password, a name before the host, or a signature is in an address."""
    for part in address.split("::"):
        scheme, separator, rest = part.partition("://")
        rest = unquote(unquote(rest))
        user = rest.rpartition("@")[0]
        is_user = bool(user) and "/" not in user and scheme.lower() not in USER_SCHEMES
        if separator and (":" in user or is_user or SECRET_PARAMETER.search(rest)):
            return True
    return False
