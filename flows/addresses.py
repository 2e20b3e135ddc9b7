"""Addresses that users give: they are shown, logged and kept with every result, so no secret may be in one."""

import re
from typing import Annotated, LiteralString

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

SECRET: LiteralString = "secret"
"""Kind of the error whose input is not to be shown."""
PASSWORD = re.compile(r"://[^/@]*:(?!\d+(/|$))[^@]+@")
"""What stands between user and host; a port is none."""
SIGNED = re.compile(
    r"[?&;](x-(amz|goog)-(signature|credential|security-token)|signature|sig|\w*token|\w*password|\w*secret|api[_-]?key)=",
    re.IGNORECASE,
)


def _without_secrets(address: str) -> str:
    """Addresses may be chained: zip://a.json::s3://bucket/a.zip."""
    parts = [part for part in address.split("::") if "://" in part]
    if any(PASSWORD.search(part) or SIGNED.search(part) for part in parts):
        raise PydanticCustomError(
            SECRET,
            "an address with a password or a signature in it; addresses are kept with every result, so give these to "
            "the store's package: s3 reads AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, gs "
            "GOOGLE_APPLICATION_CREDENTIALS, abfs AZURE_STORAGE_ACCOUNT_KEY; of other servers download the file first",
        )
    return address


Address = Annotated[str, AfterValidator(_without_secrets)]
