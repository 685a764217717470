"""Parse and validate URLs: http and https only, no redirects from https to http, no passwords."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from ...utils.errors import RemoteError, safe
from .addresses import is_odd_number

_PORTS = {"http": 80, "https": 443}
_SAFE = "/%:@!$&'()*+,;=~"


class Url(NamedTuple):
    """A parsed URL; a trusted one belongs to the endpoint and may receive its token."""

    scheme: str
    host: str
    port: int
    path: str  # quoted, with the leading slash
    query: str = ""  # with the question mark; never displayed, as it may contain a signature
    is_trusted: bool = False

    @property
    def origin(self) -> tuple[str, str, int]:
        """The scheme, host and port."""
        return self.scheme, self.host, self.port

    @property
    def site(self) -> str:
        """The origin as text."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (
            "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        )

    @property
    def url(self) -> str:
        """The whole URL as text."""
        return self.site + self.path + self.query

    @property
    def display(self) -> str:
        """The URL without the query, escaped for display."""
        return safe(self.site + self.path)

    @property
    def is_private(self) -> bool:
        """Whether the connection is encrypted or local."""
        return self.scheme == "https" or self.is_loopback

    @property
    def is_loopback(self) -> bool:
        """Whether the host is this machine."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_number(self) -> bool:
        """Whether the host is an address, which no one has to resolve."""
        try:
            return ip_address(self.host) is not None
        except ValueError:
            return False

    def redirected_to(self, location: str) -> Url:
        """Return the target of a redirect; another host, port or scheme is no longer trusted."""
        target = parse_url(location, "redirect", f"the redirect of {self.display}", self.url)
        if (self.scheme, target.scheme) == ("https", "http"):
            raise RemoteError(
                "redirect", f"{self.display} redirects from https to http, at {target.display}"
            )
        return target._replace(is_trusted=self.is_trusted and target.origin == self.origin)


def parse_url(text: str, code: str = "url", subject: str = "the address", base: str = "") -> Url:
    """Parse an http or https URL, which may be relative to `base`."""
    try:
        parts = urlsplit(urljoin(base, text))
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise RemoteError(code, f"{subject} is not a URL: {safe(str(error), 80)}") from None
    if parts.scheme not in _PORTS or not host or not re.fullmatch(r"[a-z0-9._:-]+", host):
        found = f"{safe(parts.scheme, 20)}:" if parts.scheme else "no scheme"
        raise RemoteError(
            code,
            f"{subject} is not a web address: expected http:// or https:// "
            f"and an ASCII host name, found {found}",
        )
    if is_odd_number(host):
        raise RemoteError(
            code,
            f"{subject} has the host {safe(host)}: expected an address of "
            "four decimal numbers, or a name",
        )
    if "@" in parts.netloc:
        raise RemoteError(
            code,
            f"{subject} contains a user name or a password, which is not sent",
            hint="set HF_TOKEN to send a token to the Hub",
        )
    query = "?" + quote_url(parts.query, _SAFE + "?") if parts.query else ""
    return Url(
        parts.scheme,
        host,
        _PORTS[parts.scheme] if port is None else port,
        quote_url(parts.path or "/", _SAFE),
        query,
    )


def quote_url(text: str, keep: str = "") -> str:
    """Quote text for a URL; lone surrogates are quoted, too."""
    return quote(text, safe=keep, errors="surrogatepass")
