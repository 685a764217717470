"""Firefox for tests: Debian's build, driven by WebDriver BiDi over a WebSocket, without geckodriver."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from itertools import count
from pathlib import Path
from typing import Any, Self

from support.browser_page import FRAMES, UNTIL_WHOLE

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
HANG_S = 120
_PREFERENCES = """user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("toolkit.telemetry.reportingpolicy.firstRun", false);
user_pref("app.normandy.enabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("remote.prefs.recommended", true);
"""


class WebSocket:
    """A client of one WebSocket on loopback, for text messages."""

    def __init__(self, port: int, path: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=HANG_S)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
        ]
        lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
        self.socket.sendall("\r\n".join(lines).encode())
        self.file = self.socket.makefile("rb")
        status = self.file.readline()
        assert b" 101 " in status, status
        while self.file.readline().strip():
            pass

    def close(self) -> None:
        """Close the connection."""
        self.file.close()
        self.socket.close()

    def send(self, text: str) -> None:
        """Send a message in one masked frame."""
        data, mask = text.encode(), os.urandom(4)
        size = (
            bytes([0x80 | len(data)])
            if len(data) < 126
            else b"\xfe" + len(data).to_bytes(2)
            if len(data) < 1 << 16
            else b"\xff" + len(data).to_bytes(8)
        )
        self.socket.sendall(
            b"\x81" + size + mask + bytes(x ^ mask[i % 4] for i, x in enumerate(data))
        )

    def receive(self) -> str:
        """Return the next message, of one frame or several."""
        parts, last = [], False
        while not last:
            first, length = self.file.read(2)
            last = bool(first & 0x80)
            size = length & 0x7F
            if size > 125:
                size = int.from_bytes(self.file.read(2 if size == 126 else 8))
            data = self.file.read(size)
            if first & 0x0F <= 2:
                parts.append(data)
            elif first & 0x0F == 8:
                raise ConnectionError("Firefox closed the connection")
            else:
                last = False
        return b"".join(parts).decode()


class Firefox:
    """A headless Firefox with a profile of its own and one tab; messages of its console that are errors are kept in `errors`."""

    def __init__(self, folder: Path) -> None:
        assert FIREFOX is not None
        profile = Path(tempfile.mkdtemp(dir=folder))
        (profile / "user.js").write_text(_PREFERENCES)
        command = [
            FIREFOX,
            "--headless",
            "--no-remote",
            "--profile",
            str(profile),
            "--remote-debugging-port",
            "0",
            "about:blank",
        ]
        env = os.environ | {"HOME": str(profile), "MOZ_DISABLE_CONTENT_SANDBOX": "1"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env
        )
        assert self.process.stderr is not None
        found = None
        for line in self.process.stderr:
            if found := re.search(r"WebDriver BiDi listening on ws://[^:]+:(\d+)", line):
                break
        assert found, "Firefox did not start"
        self.socket, self.numbers, self.errors = (
            WebSocket(int(found[1]), "/session"),
            count(1),
            list[str](),
        )
        self.call("session.new", capabilities={})
        self.call("session.subscribe", events=["log.entryAdded"])
        self.tab = self.call("browsingContext.getTree")["contexts"][0]["context"]

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol; events on the way are kept if they are errors."""
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("method") == "log.entryAdded" and message["params"]["level"] == "error":
                self.errors.append(message["params"]["text"])
            if message.get("id") == number:
                assert message["type"] == "success", message
                return message["result"]

    def open(self, address: str, width: int = 1280, height: int = 900) -> None:
        """Open a page and wait until it is loaded and drawn."""
        self._set_size(width, height)
        self.call("browsingContext.navigate", context=self.tab, url=address, wait="complete")
        self.evaluate(UNTIL_WHOLE)

    def resize(self, width: int, height: int = 900) -> None:
        """Give the window a size and wait until the page is drawn in it."""
        self._set_size(width, height)
        self.evaluate(f"({FRAMES})().then(() => {UNTIL_WHOLE})")

    def _set_size(self, width: int, height: int) -> None:
        self.call(
            "browsingContext.setViewport",
            context=self.tab,
            viewport={"width": width, "height": height},
        )

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, as JSON carries it."""
        code = f"Promise.resolve({expression}).then((x) => JSON.stringify(x ?? null))"
        result = self.call(
            "script.evaluate", expression=code, target={"context": self.tab}, awaitPromise=True
        )
        assert result["type"] == "success", result
        return json.loads(result["result"]["value"])

    def screenshot(self, path: Path) -> None:
        """Save a picture of the window."""
        path.write_bytes(
            base64.b64decode(
                self.call("browsingContext.captureScreenshot", context=self.tab)["data"]
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        self.process.terminate()
        self.process.communicate(timeout=HANG_S)
