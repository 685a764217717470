"""`llamath serve` while answers hang: others are answered, processes are killed and replaced, and all end with the server."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import llamath
from support import hanging_tools
from support.serving import HANG_S, Place, served

pytest.importorskip("uvicorn")
from llamath.utils.worker_process import WorkerEnded, WorkerProcess
from llamath.web.server import application, work_slots
from llamath.web.server.error_page import PageError
from llamath.web.server.timeouts import ConnectionLimits
from llamath.web.server.work_slots import WorkerFailed, WorkSlots

LONG = 100_000.0
"""Seconds, more than a test takes: what does not end by itself is ended by something else."""
TESTS = Path(__file__).parents[1]
LLAMA = json.dumps(
    {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 99,
    }
).encode()


def lives(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return (
            not stat.parent.parent.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except OSError:
        return False


def pids(folder: Path) -> list[int]:
    """The processes that have begun to hang."""
    return [int(x.name) for x in folder.iterdir()]


class Sent:
    """Requests that are sent at once, each in a thread, and what was answered."""

    def __init__(self, port: int, path: str, number: int, body: bytes) -> None:
        self.statuses: list[object] = []
        self.threads = [
            threading.Thread(target=self._send, args=(port, path, body), daemon=True)
            for _ in range(number)
        ]
        for x in self.threads:
            x.start()

    def _send(self, port: int, path: str, body: bytes) -> None:
        wire = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
        try:
            wire.request("POST", path, body, {"Content-Type": "application/json"})
            answer = wire.getresponse()
            text = answer.read()
            assert text and (
                answer.status not in (429, 503) or answer.headers["Retry-After"] == "2"
            )
            self.statuses.append(answer.status)
        except Exception as error:
            self.statuses.append(type(error).__name__)
        finally:
            wire.close()

    def join(self) -> Counter[object]:
        for x in self.threads:
            x.join(HANG_S)
        return Counter(self.statuses)


@contextmanager
def hanging(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A server with a tool that hangs, and no limit of time."""
    monkeypatch.setenv(hanging_tools.FOLDER, str(folder))
    monkeypatch.setattr(work_slots, "WORK_SECONDS", LONG)
    monkeypatch.setattr(work_slots, "_WAIT_SECONDS", LONG)
    limits = ConnectionLimits(request_seconds=LONG, response_seconds=LONG)
    with served([llamath.load("gpt2")], api=hanging_tools.tools, limits=limits) as place:
        yield place


def test_others_are_answered_while_answers_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    read_posted = application.read_posted

    async def counted(request: Any) -> Any:
        read.append(1)
        return await read_posted(request)

    monkeypatch.setattr(application, "read_posted", counted)
    with hanging(tmp_path, monkeypatch) as place:
        first = Sent(place.port, f"{place.path}api/hang", 1, LLAMA)
        assert Place.wait_for(lambda: len(pids(tmp_path)) == 1)
        post = {"method": "POST", "body": LLAMA, "Content_Type": "application/json"}
        status, headers, _ = place.ask(f"{place.path}api/count", **post)  # type: ignore[arg-type]
        assert status == 200
        for path in ("api/count?model=gpt2", f"model/{headers['llamath-model']}", "choose"):
            assert place.ask(place.path + path)[0] == 200, path
        more = Sent(place.port, f"{place.path}api/hang", 40, LLAMA + b" " * 3_000_000)
        assert Place.wait_for(lambda: len(pids(tmp_path)) == 2 and len(more.statuses) == 17)
        assert Counter(more.statuses) == {429: 17}, (
            "7 are read and wait or hang, 16 wait, and the others are refused"
        )
        assert len(read) == 2 + 7 and not first.statuses
        for path in ("model/llama-3-8b", "choose", "nothing"):
            assert place.ask(place.path + path)[0] == (404 if path == "nothing" else 200), path
        assert all(map(lives, pids(tmp_path))) and len(pids(tmp_path)) == 2 and not first.statuses
    assert first.join() == {503: 1} and more.join() == {429: 17, 503: 23}
    assert not any(map(lives, pids(tmp_path)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_processes_that_hang_end_with_the_server(tmp_path: Path, number: signal.Signals) -> None:
    if number == signal.SIGKILL and sys.platform != "linux":
        pytest.skip("elsewhere, the processes end themselves later")
    script = [sys.executable, "-m", "support.hanging_tools", str(tmp_path)]
    with subprocess.Popen(
        script, cwd=TESTS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None and server.stderr is not None
            url = urlsplit(server.stdout.readline())
            assert url.port is not None
            sent = Sent(url.port, f"{url.path.strip()}api/hang", 3, LLAMA)
            assert Place.wait_for(lambda: len(pids(tmp_path)) == 2)
            assert not sent.statuses and all(map(lives, pids(tmp_path)))
            server.send_signal(number)
            server.wait(HANG_S)
            assert Place.wait_for(lambda: not any(map(lives, pids(tmp_path))))
            assert len(pids(tmp_path)) == 2
            assert "Traceback" not in server.stderr.read() or number == signal.SIGINT
        finally:
            server.kill()


def test_config_with_hostile_recipe_stops_nothing(tmp_path: Path) -> None:
    """A pattern of a recipe that once backtracked for years, and held the lock of the interpreter."""
    config = json.loads(LLAMA) | {
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}
    }
    config["quantization_config"]["dynamic"] = {"-:(?:[a-z._0-9]?){40}!": {}}
    program = [sys.executable, "-m", "llamath", "serve", "--no-browser"]
    with subprocess.Popen(program, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = urlsplit(server.stdout.readline().strip())
            assert url.port is not None
            sent = [
                Sent(url.port, f"{url.path}api/memory", 1, json.dumps(config).encode())
                for _ in range(2)
            ]
            with closing(http.client.HTTPConnection("127.0.0.1", url.port, timeout=HANG_S)) as wire:
                for path, status in (("nothing", 404), ("model/gpt2", 200), ("choose", 200)):
                    wire.request("GET", url.path + path)
                    answer = wire.getresponse()
                    assert answer.read() and answer.status == status
            server.send_signal(signal.SIGINT)
            assert server.wait(HANG_S) == 130
            assert all(x.join().keys() <= {200, 422, 503} for x in sent)
        finally:
            server.kill()


def test_process_answers_until_a_limit_ends_it() -> None:
    def worker(seconds: float = LONG) -> WorkerProcess:
        return WorkerProcess(hanging_tools.work, "setup", seconds=seconds, memory=1 << 30)

    def ended(message: bytes, seconds: float = LONG) -> str:
        process = worker(seconds)
        with pytest.raises(WorkerEnded) as found:
            process.ask(message)
        assert not process.is_alive and process.pid is not None and not lives(process.pid)
        return found.value.reason

    good = worker()
    assert (
        good.ask(b"") == good.ask(bytes(10 << 20)) == f"setup {good.pid}".encode() and good.is_alive
    )
    reasons = [ended(b"hang", 0.1), ended(b"end"), ended(b"raise")]
    assert reasons == ["time", "killed", "error"]
    if sys.platform == "linux":
        assert ended(b"fill the memory") == "memory"
    waiting: list[str] = []
    thread = threading.Thread(target=lambda: waiting.append(ended_by_kill(good)))
    thread.start()
    assert good.is_alive
    good.kill()
    thread.join(HANG_S)
    assert waiting == ["killed"]


def ended_by_kill(process: WorkerProcess) -> str:
    with pytest.raises(WorkerEnded) as found:
        process.ask(b"hang")
    return found.value.reason


def test_killed_processes_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_slots, "_MAX_ANSWERS", 3)

    async def run() -> None:
        work = WorkSlots(hanging_tools.work, "setup")
        ask: Callable[[bytes], Any] = lambda message: work.ask(message, is_question=True)  # noqa: E731
        work.seconds = 0.1
        for _ in range(4):  # more than there are processes
            with pytest.raises(PageError) as caught:
                await ask(b"hang")
            assert (caught.value.status, caught.value.code) == (422, "too_slow") and not work.pids
        work.seconds = LONG
        first = await ask(b"")
        assert first.decode() == f"setup {work.pids[0]}" == (await ask(b"")).decode()
        os.kill(work.pids[0], getattr(signal, "SIGKILL", signal.SIGTERM))
        assert Place.wait_for(lambda: not next(iter(work._workers)).is_alive)
        answers = [await ask(b"") for _ in range(3)]
        assert len(set(answers)) == 1 and answers[0] != first
        assert await ask(b"") not in answers, "a process answers a limited number of times"
        with pytest.raises(PageError) as caught:
            await ask(b"end")
        assert caught.value.status == 503 and await ask(b"")
        with pytest.raises(WorkerFailed, match="ZeroDivisionError: of a test"):
            await ask(b"raise")
        assert await ask(b"")
        left = work.pids
        work.close()
        with pytest.raises(PageError, match="is ending"):
            await ask(b"")
        assert left and not any(map(lives, left))

    asyncio.run(run())


@pytest.mark.parametrize("most", [0, 8])
def test_many_connections_at_once_are_all_answered(most: int) -> None:
    with served([], limits=ConnectionLimits(max_connections=most, request_seconds=LONG)) as place:
        links = [
            socket.create_connection(("127.0.0.1", place.port), timeout=HANG_S) for _ in range(200)
        ]
        for link in links:
            link.sendall(
                f"GET {place.path}openapi.json HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\nConnection: close\r\n\r\n".encode()
            )
        statuses: Counter[bytes] = Counter()
        for link in links:
            text = b""
            while data := link.recv(1 << 16):
                text += data
            head, _, body = text.partition(b"\r\n\r\n")
            length = next(
                int(x.split(b":")[1])
                for x in head.split(b"\r\n")
                if x.lower().startswith(b"content-length")
            )
            assert len(body) == length
            statuses[head[:12]] += 1
            link.close()
        assert (
            set(statuses) <= {b"HTTP/1.1 200", b"HTTP/1.1 503"} and statuses[b"HTTP/1.1 200"] >= 1
        ), statuses
        assert Place.wait_for(lambda: not place.connections)
        assert place.ask(f"{place.path}openapi.json")[0] == 200
