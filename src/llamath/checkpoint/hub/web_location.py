"""A place on the web, and where a redirect from it may lead: over http or https, never from https back to http, never with a password."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from ...core.errors import RemoteError, safe

PORTS = {"http": 80, "https": 443}
_SAFE = "/%:@!$&'()*+,;=~"


class Place(NamedTuple):
    """A URL taken apart; `trusted` places are the configured endpoint's and may see its token."""

    scheme: str
    host: str
    port: int
    path: str  # quoted, from the slash
    query: str = ""  # with its question mark; it may hold a signature, so it is never shown
    trusted: bool = False

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
    def shown(self) -> str:
        """What may be told: without the query."""
        return safe(self.site + self.path)

    @property
    def private(self) -> bool:
        """Whether nobody between here and there can listen."""
        return self.scheme == "https" or self.loopback

    @property
    def loopback(self) -> bool:
        """Whether it is this machine."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False

    def follow(self, location: str) -> Place:
        """Where a redirect leads; trust ends for good at the first step to another host, port or scheme."""
        there = place(location, "redirect", f"what {self.shown} redirects to", self.url)
        if (self.scheme, there.scheme) == ("https", "http"):
            raise RemoteError("redirect", f"{self.shown} redirects from https to http, at {there.shown}")
        return there._replace(trusted=self.trusted and there.origin == self.origin)


def place(text: str, code: str = "url", what: str = "the address", base: str = "") -> Place:
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
    query = "?" + quoted(parts.query, _SAFE + "?") if parts.query else ""
    return Place(parts.scheme, host, PORTS[parts.scheme] if port is None else port, quoted(parts.path or "/", _SAFE), query)


def quoted(text: str, keep: str = "") -> str:
    """Text as a part of a URL; what is no text at all is quoted as well."""
    return quote(text, safe=keep, errors="surrogatepass")
