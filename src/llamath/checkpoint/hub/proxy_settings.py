"""The proxy that the environment names for a place (`https_proxy`, `no_proxy`); this machine is always reached directly."""

from __future__ import annotations

from base64 import b64encode
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from ...core.errors import RemoteError
from .web_location import Url


class Proxy(NamedTuple):
    """An HTTP proxy; `headers` hold its own password, for it alone."""

    host: str
    port: int
    headers: dict[str, str]


def proxy_for(there: Url) -> Proxy | None:
    """The proxy on the way to a place, if there is one."""
    if there.is_loopback or proxy_bypass(there.host):
        return None
    known = getproxies()
    text = known.get(there.scheme) or known.get("all")
    if not text:
        return None
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        host, port = None, 0
    if not host or parts.scheme != "http":
        raise RemoteError("proxy", f"the proxy for {there.scheme} is no http:// address", hint=f"see {there.scheme}_proxy, or no_proxy")
    if parts.username is None:
        return Proxy(host, port, {})
    secret = b64encode(f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()).decode()
    return Proxy(host, port, {"Proxy-Authorization": f"Basic {secret}"})
