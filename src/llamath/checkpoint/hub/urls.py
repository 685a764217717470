"""A place on the web, and where a redirect from it may lead: over http or https, never from https back to http, never with a password."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from ...core.errors import RemoteError, safe

PORTS = {"http": 80, "https": 443}
_SAFE = "/%:@!$&'()*+,;=~"


class Url(NamedTuple):
    """A URL taken apart; `trusted` places are the configured endpoint's and may see its token."""

    scheme: str
    host: str
    port: int
    path: str  # quoted, from the slash
    query: str = ""  # with its question mark; it may hold a signature, so it is never shown
    is_trusted: bool = False

    @property
    def origin(self) -> tuple[str, str, int]:
        """Whom one talks to there."""
        return self.scheme, self.host, self.port

    @property
    def site(self) -> str:
        """The origin as a URL writes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == PORTS[self.scheme] else f":{self.port}")

    @property
    def url(self) -> str:
        """All of it."""
        return self.site + self.path + self.query

    @property
    def display(self) -> str:
        """What may be told: without the query."""
        return safe(self.site + self.path)

    @property
    def is_private(self) -> bool:
        """Whether nobody between here and there can listen."""
        return self.scheme == "https" or self.is_loopback

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False

    def redirected_to(self, location: str) -> Url:
        """Where a redirect leads; trust ends for good at the first step to another host, port or scheme."""
        there = parse_url(location, "redirect", f"what {self.display} redirects to", self.url)
        if (self.scheme, there.scheme) == ("https", "http"):
            raise RemoteError("redirect", f"{self.display} redirects from https to http, at {there.display}")
        return there._replace(is_trusted=self.is_trusted and there.origin == self.origin)


def parse_url(text: str, code: str = "url", what: str = "the address", base: str = "") -> Url:
    """The place of an http or https URL, which may be relative to `base`."""
    try:
        parts = urlsplit(urljoin(base, text))
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise RemoteError(code, f"{what} is no URL: {safe(str(error), 80)}") from None
    if parts.scheme not in PORTS or not host or not re.fullmatch(r"[a-z0-9._:-]+", host):
        found = f"{safe(parts.scheme, 20)}:" if parts.scheme else "no scheme"
        raise RemoteError(code, f"{what} is no web address: expected http:// or https:// and a host's name in ASCII, found {found}")
    if "@" in parts.netloc:
        raise RemoteError(code, f"{what} holds a user or a password, which is not sent", hint="a token for the hub goes into HF_TOKEN")
    query = "?" + quote_url(parts.query, _SAFE + "?") if parts.query else ""
    return Url(parts.scheme, host, PORTS[parts.scheme] if port is None else port, quote_url(parts.path or "/", _SAFE), query)


def quote_url(text: str, keep: str = "") -> str:
    """Text as a part of a URL; what is no text at all is quoted as well."""
    return quote(text, safe=keep, errors="surrogatepass")
