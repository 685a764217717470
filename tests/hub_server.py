"""Web servers on loopback: one speaks the hub's protocol over files that a test makes, another is the store it redirects to; any page of
either can be made to misbehave."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, NamedTuple
from urllib.parse import quote

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Page = Callable[["Handler"], None]


class Request(NamedTuple):
    path: str
    headers: Mapping[str, str]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        with self.site.lock:
            self.site.seen.append(Request(self.path, {k.lower(): v for k, v in self.headers.items()}))
        self.site.pages.get(path, status(404, {"X-Error-Code": "EntryNotFound"}))(self)

    def answer(self, code: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        with self.site.lock:
            self.site.sent += len(body)

    def log_message(self, *_: Any) -> None:
        pass


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        pass


class Site:
    """A server, what it was asked, how many bytes of body it sent."""

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.sent = 0
        self.pages: dict[str, Page] = {}
        self.lock, self.stop = Lock(), Event()
        self._server = Quiet(("127.0.0.1", 0), type("Bound", (Handler,), {"site": self}))
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.stop.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def sites(count: int) -> Iterator[list[Site]]:
    made = [Site() for _ in range(count)]
    try:
        yield made
    finally:
        for site in made:
            site.close()


def file(data: bytes, tag: str = '"one"') -> Page:
    """A file, by ranges as RFC 9110 has them."""

    def page(handler: Handler) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        if asked is None:
            return handler.answer(200, data, {"ETag": tag})
        first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
        if first >= len(data):
            return handler.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        return handler.answer(206, data[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{len(data)}", "ETag": tag})

    return page


def status(code: int, headers: Mapping[str, str] | None = None, body: bytes = b"no") -> Page:
    return lambda handler: handler.answer(code, body, headers)


def redirect(to: str, code: int = 302) -> Page:
    return lambda handler: handler.answer(code, b"Found. Redirecting", {"Location": to})


def raw(*parts: bytes, pause: float = 0) -> Page:
    """These bytes as they are, then the end of the connection."""

    def page(handler: Handler) -> None:
        for part in parts:
            handler.wfile.write(part)
            handler.wfile.flush()
            if pause and handler.site.stop.wait(pause):
                break
        handler.close_connection = True

    return page


class Hub:
    """One repository: small JSON comes from the endpoint itself, everything else is redirected to the store, as on the real one."""

    def __init__(self, endpoint: Site, store: Site, files: Mapping[str, bytes], repo: str = "org/name") -> None:
        self.endpoint, self.store, self.files, self.repo = endpoint, store, dict(files), repo
        siblings = [{"rfilename": name} for name in files]
        self.api = f"/api/models/{repo}/revision/main"
        self.api_answer(status(200, {}, json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings, "tags": []}).encode()))
        for name, data in files.items():
            path = quote(name)
            if name.endswith(".json"):
                endpoint.pages[self.resolve(name)] = redirect(f"/api/resolve-cache/models/{repo}/{COMMIT}/{path}", 307)
                endpoint.pages[f"/api/resolve-cache/models/{repo}/{COMMIT}/{path}"] = file(data)
            else:
                endpoint.pages[self.resolve(name)] = redirect(f"{store.url}/{path}?X-Signature=sealed")
                store.pages[f"/{path}"] = file(data)

    def api_answer(self, page: Page, revision: str = "main") -> None:
        self.endpoint.pages[f"/api/models/{self.repo}/revision/{quote(revision, safe='')}"] = page

    def resolve(self, name: str) -> str:
        return f"/{self.repo}/resolve/{COMMIT}/{quote(name)}"


def safetensors(shapes: Mapping[str, tuple[int, ...]], metadata: Mapping[str, str] | None = None) -> bytes:
    """A checkpoint in float32."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, shape in shapes.items():
        size = 4
        for n in shape:
            size *= n
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + bytes(at)


def header_length(data: bytes) -> int:
    return int.from_bytes(data[:8], "little")


def gguf(tensors: Mapping[str, tuple[int, ...]], keys: Mapping[str, tuple[int, str, Any]] | None = None) -> bytes:
    """A GGUF of float32 tensors; `keys` gives type number, struct format and value."""
    text = lambda x: struct.pack("<Q", len(x)) + x.encode()  # noqa: E731
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys or {}))
    for key, (kind, layout, value) in (keys or {}).items():
        head += text(key) + struct.pack("<I", kind) + struct.pack(f"<{layout}", value)
    data = b""
    for name, shape in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, len(data))
        size = 4
        for n in shape:
            size *= n
        data += bytes(size + -size % 32)
    return head + bytes(-len(head) % 32) + data


