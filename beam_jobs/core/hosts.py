"""Decides which hosts may be read from over http(s): of every request, redirected ones too.

A server opens addresses for anyone who fills in a form, and follows where the servers behind them
lead; so neither may reach the network behind it unless a setting says so.
"""

import asyncio
import ipaddress
import os
import re
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from amazon_electra.beam_jobs.core.errors import TransientError, UserError
from amazon_electra.beam_jobs.core.variables import read_names

PRIVATE_HOSTS_VARIABLE = "AMAZON_ELECTRA_PRIVATE_HOSTS"
"""Environment variable with the hosts of private networks that may be read from."""
SERVICE_HOSTS = {"gs": "storage.googleapis.com", "s3": "s3.amazonaws.com"}
"""Hosts by which object stores are reached, unless a variable names another route."""
OTHER_ROUTE = r"(?i)ENDPOINT|EMULATOR_HOST|^(https?|all)_proxy$"
RESOLVE_SECONDS = 5.0
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""An IPv4 address is in the last four bytes (RFC 6052)."""
NO_INTERNET = ipaddress.IPv6Network("64:ff9b:1::/48")
"""NAT64 within a network (RFC 8215), which `ipaddress` takes for global."""


def check_host(address: str, where: str) -> None:
    """Raise an error unless the host of an address is known, and not one of a private network.

    Loopback and link-local addresses are private too, as is every name that resolves to one: then
    it is a UserError. A name that cannot be resolved is a TransientError at once: the packages of
    the stores try for a minute.
    """
    parts = urlsplit(address)
    is_web = parts.scheme in ("http", "https")
    name = ((parts.hostname if is_web else SERVICE_HOSTS.get(parts.scheme)) or "").lower()
    if not name or name in read_names(PRIVATE_HOSTS_VARIABLE):
        return
    if not is_web and any(re.search(OTHER_ROUTE, variable) for variable in os.environ):
        return
    ips = _resolve_name(name)
    if not ips and not any(re.search(OTHER_ROUTE, variable) for variable in os.environ):
        raise TransientError(
            f"{where} cannot be reached: no address of {name} was found within "
            f"{RESOLVE_SECONDS:.0f} s; is this machine connected to the network?"
        )
    for ip in ips if is_web else ():
        check_ip(ip, name, where)


def check_ip(ip: str, name: str, address: str) -> None:
    """Raise UserError if a host's IP address is of a private network that nobody allowed."""
    if not is_public(ip) and name.lower() not in read_names(PRIVATE_HOSTS_VARIABLE):
        raise UserError(
            f"{address}: {name}{f', {ip},' * (name != ip)} is on this machine or in a private "
            f"network; {PRIVATE_HOSTS_VARIABLE}={name} allows it"
        )


def is_public(ip: str) -> bool:
    """Return whether an IP address is one of the internet; that in an IPv6 address counts too."""
    found = ipaddress.ip_address(ip.split("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found in NAT64:
            found = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        elif found in NO_INTERNET:
            return False
        else:
            found = found.sixtofour or found
    return found.is_global and not found.is_multicast


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


async def open_checked_session(**settings: Any) -> Any:
    """Return an aiohttp session that checks the host of every request, as fsspec's `get_client`."""
    import aiohttp

    class CheckedResolver(aiohttp.ThreadedResolver):
        """Its answers are what is connected to; addresses without a name do not come here."""

        async def resolve(self, host: str, *arguments: Any, **options: Any) -> Any:
            found = await super().resolve(host, *arguments, **options)
            for place in found:
                check_ip(place["host"], host, "connected to")
            return found

    settings.setdefault("connector", aiohttp.TCPConnector(resolver=CheckedResolver()))
    return aiohttp.ClientSession(middlewares=[_check_request], **settings)


async def _check_request(request: Any, send: Callable[[Any], Awaitable[Any]]) -> Any:
    """Send a request, one that follows a redirect too, if its host may be read from."""
    await asyncio.to_thread(check_host, str(request.url), str(request.url))
    return await send(request)
