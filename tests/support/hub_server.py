"""Web servers on loopback: a Hub endpoint for files of a test, and the store that it redirects to. Every page of either can be replaced
by one that misbehaves."""

from __future__ import annotations

import hashlib
import json
import re
import select
import socket
import ssl
import struct
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, NamedTuple
from urllib.parse import quote

from llamath.checkpoint.formats import checkpoint_files as checkpoint
from llamath.checkpoint.formats.manifest import Manifest
from llamath.checkpoint.hub import Limits
from llamath.utils.errors import LlamathError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Page = Callable[["Handler"], None]


class Request(NamedTuple):
    path: str
    headers: Mapping[str, str]


class Handler(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    site: Site

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        with self.site.lock:
            self.site.seen.append(
                Request(self.path, {k.lower(): v for k, v in self.headers.items()})
            )
        self.site.pages.get(path, status(404, {"X-Error-Code": "EntryNotFound"}))(self)

    def do_CONNECT(self) -> None:
        """Open a proxy tunnel to `tunnel`, whatever host is requested."""
        self.site.seen.append(Request(self.path, {k.lower(): v for k, v in self.headers.items()}))
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        with socket.create_connection(("127.0.0.1", self.site.tunnel)) as upstream:
            ends = {self.connection: upstream, upstream: self.connection}
            while ready := select.select(list(ends), [], [], 5)[0]:
                for end in ready:
                    if not (data := end.recv(1 << 16)):
                        return
                    ends[end].sendall(data)

    def answer(
        self, code: int, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(code)
        for name, value in {
            "Content-Length": str(len(body)),
            "X-Repo-Commit": COMMIT,
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body)
        with self.site.lock:
            self.site.sent += len(body)

    def do_HEAD(self) -> None:
        """Answer the first request of huggingface_hub."""
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        pass


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        pass


class Site:
    """A server, its received requests, and the number of body bytes it sent."""

    def __init__(self, certificate: tuple[str, str] | None = None) -> None:
        self.seen: list[Request] = []
        self.sent = self.tunnel = 0
        self.pages: dict[str, Page] = {}
        self.lock, self.stop = Lock(), Event()
        self._server = Quiet(("127.0.0.1", 0), type("Bound", (Handler,), {"site": self}))
        self.port = self._server.server_address[1]
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def close(self) -> None:
        self.stop.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def sites(count: int, certificate: tuple[str, str] | None = None) -> Iterator[list[Site]]:
    sites_ = [Site(certificate) for _ in range(count)]
    try:
        yield sites_
    finally:
        for site in sites_:
            site.close()


def file(data: bytes, tag: str = '"one"') -> Page:
    """Return a page that serves a file by ranges as in RFC 9110."""

    def page(handler: Handler) -> None:
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        if match is None:
            return handler.answer(200, data, {"ETag": tag})
        first, last = int(match[1]), min(int(match[2]), len(data) - 1)
        if first >= len(data):
            return handler.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        return handler.answer(
            206,
            data[first : last + 1],
            {"Content-Range": f"bytes {first}-{last}/{len(data)}", "ETag": tag},
        )

    return page


def status(code: int, headers: Mapping[str, str] | None = None, body: bytes = b"no") -> Page:
    return lambda handler: handler.answer(code, body, headers)


def redirect(to: str, code: int = 302) -> Page:
    return lambda handler: handler.answer(code, b"Found. Redirecting", {"Location": to})


def raw(*parts: bytes, pause: float = 0) -> Page:
    """Return a page that sends these bytes and closes the connection."""

    def page(handler: Handler) -> None:
        for part in parts:
            handler.wfile.write(part)
            handler.wfile.flush()
            if pause and handler.site.stop.wait(pause):
                break
        handler.close_connection = True

    return page


def _digest(name: str, data: bytes) -> str:
    """Return what the Hub names a file by: the SHA-1 of its git blob if it is small text, else its SHA-256."""
    if not name.endswith(".json"):
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class Hub:
    """One repository: the endpoint serves small JSON files and redirects everything else to the store, as the Hub does."""

    def __init__(
        self, endpoint: Site, store: Site, files: Mapping[str, bytes], repo: str = "org/name"
    ) -> None:
        self.endpoint, self.store, self.files, self.repo = endpoint, store, dict(files), repo
        siblings = [{"rfilename": name} for name in files]
        self.api = f"/api/models/{repo}/revision/main"
        for revision in ("main", COMMIT):
            self.api_answer(
                status(
                    200,
                    {},
                    json.dumps(
                        {"id": repo, "sha": COMMIT, "siblings": siblings, "tags": []}
                    ).encode(),
                ),
                revision,
            )
        entries = [
            {"type": "file", "path": x, "size": len(data), "oid": _digest(x, data)}
            for x, data in files.items()
        ]
        endpoint.pages[f"/api/models/{repo}/tree/{COMMIT}"] = status(
            200, {}, json.dumps(entries).encode()
        )
        for name, data in files.items():
            path = quote(name)
            if name.endswith(".json"):
                endpoint.pages[self.resolve(name)] = redirect(
                    f"/api/resolve-cache/models/{repo}/{COMMIT}/{path}", 307
                )
                endpoint.pages[f"/api/resolve-cache/models/{repo}/{COMMIT}/{path}"] = file(
                    data, f'"{_digest(name, data)}"'
                )
            else:
                linked = {
                    "X-Linked-ETag": f'"{_digest(name, data)}"',
                    "X-Linked-Size": str(len(data)),
                }
                endpoint.pages[self.resolve(name)] = status(
                    302, {"Location": f"{store.url}/{path}?X-Signature=sealed", **linked}
                )
                store.pages[f"/{path}"] = file(data)

    def api_answer(self, page: Page, revision: str = "main") -> None:
        self.endpoint.pages[f"/api/models/{self.repo}/revision/{quote(revision, safe='')}"] = page

    def resolve(self, name: str) -> str:
        return f"/{self.repo}/resolve/{COMMIT}/{quote(name)}"


def safetensors(
    shapes: Mapping[str, tuple[int, ...]], metadata: Mapping[str, str] | None = None
) -> bytes:
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


def gguf(
    tensors: Mapping[str, tuple[int, ...]], keys: Mapping[str, tuple[int, str, Any]] | None = None
) -> bytes:
    """A GGUF of float32 tensors; `keys` gives type number, struct format and value."""
    text = lambda x: struct.pack("<Q", len(x)) + x.encode()  # noqa: E731
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys or {}))
    for key, (kind, layout, value) in (keys or {}).items():
        head += text(key) + struct.pack("<I", kind) + struct.pack(f"<{layout}", value)
    data = b""
    for name, shape in tensors.items():
        head += text(name) + struct.pack(
            f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, len(data)
        )
        size = 4
        for n in shape:
            size *= n
        data += bytes(size + -size % 32)
    return head + bytes(-len(head) % 32) + data


def indexed(shards: Mapping[str, bytes]) -> dict[str, bytes]:
    weight_map = {x["name"]: name for name, data in shards.items() for x in declared(data)}
    return {
        "model.safetensors.index.json": json.dumps(
            {"metadata": {}, "weight_map": weight_map}
        ).encode(),
        **shards,
    }


def declared(data: bytes) -> list[dict[str, Any]]:
    header = json.loads(data[8 : 8 + header_length(data)])
    return [{"name": name} for name in header if name != "__metadata__"]


def authorized(site: Site) -> list[bool]:
    return ["authorization" in x.headers for x in site.seen]


def error_text(error: LlamathError) -> str:
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join([*(x for x in lines if not x.startswith(" ")), error.hint])


# what the tests share


def on_disk(folder: Path, files: Mapping[str, bytes]) -> Manifest:
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    return checkpoint.read_checkpoint(str(folder))


def same(remote: Manifest, here: Manifest) -> None:
    assert remote.tensors == here.tensors
    assert remote.format == here.format
    assert remote.metadata == here.metadata
    assert [(x.name.rpartition("/")[2], x.size, x.header_bytes) for x in remote.files] == [
        (x.name.rpartition("/")[2], x.size, x.header_bytes) for x in here.files
    ]


TOKEN = "hf_secretSecretSECRET"
QUICK = Limits(connect=0.3, read=0.3, response=0.5, session=5)
CONFIG: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
}  # fmt: skip
SHARDS = {
    f"model-{i:05}-of-00012.safetensors": safetensors(
        {f"model.layers.{i}.{x}.weight": (64, 32) for x in ("q", "k", "v")}, {"format": "pt"}
    )
    for i in range(1, 13)
}
DATA = safetensors({"a.weight": (64, 64)})
