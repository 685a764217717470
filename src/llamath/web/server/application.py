"""The page over HTTP, for this machine's own browser: who asks must know the launch's token, name this host and come from no other site.

A request names models by id (`web/pages.py`) or nothing at all; no path, address or body is ever taken from one. The server keeps no
cookie and tells no other origin anything. `openapi.json` says the same to machines.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ...core.errors import LlamathError
from ...core.record_type import Record
from .chooser import error_page
from .page_html import read_asset
from .pages import Pages

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

Answer = Callable[["Request"], Awaitable["Response"]]
ROUTES: Mapping[str, str] = {"": "start", "choose": "choose", "model/{a}": "show", "models/{a}/{b}": "show", "openapi.json": "describe"}
"""What there is under `/TOKEN/`, and which function answers."""
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class AccessPolicy(Record):
    """Who is let in: those who know the token and name one of these hosts (`127.0.0.1:8000`), or, with `port`, any address by number."""

    token: str
    hosts: frozenset[str]
    port: int = 0
    one_time_path: str = ""

    def is_known_host(self, host: str) -> bool:
        """Whether a Host header names this server; a name that a stranger's DNS could give to it never does."""
        if host in self.hosts:
            return True
        name, _, port = host.rpartition(":")
        return bool(self.port) and port == str(self.port) and _is_ip_address(name)


def _is_ip_address(host: str) -> bool:
    try:
        return bool(ip_address(host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host))
    except ValueError:
        return False


def create_application(pages: Pages, door: AccessPolicy) -> Starlette:
    """The pages under `/TOKEN/`."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.routing import Route

    answers = RouteHandlers(pages)
    guard = Middleware(BaseHTTPMiddleware, dispatch=partial(guard_request, OneTimeEntry(door)))
    routes = [Route(f"/{door.token}/{path}", getattr(answers, name), methods=["GET"]) for path, name in ROUTES.items()]
    made = Starlette(routes=routes, middleware=[guard])
    made.router.redirect_slashes = False
    return made


class RouteHandlers:
    """What answers the routes."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages

    async def start(self, _: Request) -> Response:
        """The launch's models, or the page on which one is chosen."""
        return await self._page(self.pages.first(), "")

    async def choose(self, _: Request) -> Response:
        """The page on which a model is chosen."""
        return await self._page((), "")

    async def show(self, request: Request) -> Response:
        """One model, or two."""
        wanted = tuple(request.path_params.values())
        return await self._page(wanted, "../" * len(wanted))

    async def openapi(self, _: Request) -> Response:
        """These routes, for machines."""
        from starlette.responses import JSONResponse

        return JSONResponse(json.loads(read_asset("../openapi.json")))

    async def _page(self, wanted: tuple[str, ...], up: str) -> Response:
        from starlette.responses import HTMLResponse

        try:
            return HTMLResponse(await self.pages.get(wanted, up))
        except LlamathError as error:
            status = getattr(error, "status", 422)
            title = {404: "No such model", 424: "The hub does not say", 429: "Busy"}.get(status, "Not to be shown")
            more = {"Retry-After": "2"} if status == 429 else None
            return HTMLResponse(error_page(title, str(error), up), status, more)


class OneTimeEntry:
    """The door, and whether its way in for one time has been used."""

    def __init__(self, door: AccessPolicy) -> None:
        self.policy, self.one_time_path = door, door.one_time_path

    def redeem(self, path: str) -> bool:
        """Whether this is that way in, which is shut by asking."""
        if not self.one_time_path or not hmac.compare_digest(path.encode("utf-8", "surrogateescape"), f"/{self.one_time_path}".encode()):
            return False
        self.one_time_path = ""
        return True


async def guard_request(entry: OneTimeEntry, request: Request, call: Answer) -> Response:
    """An answer, if the request is let in; and what every answer says to the browser."""
    from starlette.responses import PlainTextResponse, RedirectResponse

    status = refusal_status(request, entry.policy)
    if status == 404 and entry.redeem(request.url.path):
        answer: Response = RedirectResponse(f"/{entry.policy.token}/", 303)
    elif status:
        answer = PlainTextResponse("refused", status, {"Allow": "GET, HEAD"} if status == 405 else None)
    else:
        answer = await call(request)
    answer.headers.update(HEADERS)
    answer.headers["Content-Security-Policy"] = "default-src 'none'; frame-ancestors 'none'" if status else "frame-ancestors 'none'"
    return answer


def refusal_status(request: Request, door: AccessPolicy) -> int:
    """The status with which a request is refused; 0: it is not."""
    said = request.headers
    host, origin = said.get("host", "").lower(), said.get("origin")
    if not door.is_known_host(host) or len(said.getlist("host")) != 1:
        return 421
    if request.method not in ("GET", "HEAD"):
        return 405
    if (origin is not None and origin != f"http://{host}") or said.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return 403
    if said.get("content-length", "0") != "0" or "transfer-encoding" in said:
        return 413
    given = request.url.path.split("/")[1] if request.url.path.count("/") > 1 else ""
    return 0 if hmac.compare_digest(given.encode("utf-8", "surrogateescape"), door.token.encode()) else 404
