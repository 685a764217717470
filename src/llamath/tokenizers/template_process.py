"""`TemplateProcess`: renders chat templates of files in a process of its own, which has limits and
can be killed.

The process gets the template and the messages, and answers with text; it has no files, no
environment and no arguments of this process. Where no process can be started, nothing is rendered:
what a template may do is not left to its own counter alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from queue import Empty, SimpleQueue
from signal import Signals
from typing import Any, NamedTuple

from ..utils.errors import LlamathError, MissingExtra
from .jinja.render_template import JinjaTemplate
from .jinja.template_messages import ProcessLimits, read_message, write_message
from .jinja.template_request import make_request, read_answer, template_error

_MAX_ANSWER, _ANSWER_PER_BYTE = 1 << 26, 8
"""The most bytes of an answer that are read, and how many more for each byte of the request."""
_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""Where this package is."""
_KEPT_VARIABLES = ("SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZ")
"""The environment variables that the process gets: what the interpreter needs to start, and the
time zone of dates."""
_START = (
    "import gc, json, sys; gc.disable(); sys.path += json.loads(sys.argv[1]); from "
    "llamath.tokenizers.jinja.template_child import serve; serve()"
)
_WAIT_SECONDS = 0.2
"""How long Ctrl-C may have to wait on Windows, where nothing interrupts a wait."""


class TemplateProcess:
    """Renders one model's templates. The process is started when it is needed, and ends with
    this object, or at a limit.
    """

    def __init__(self, limits: ProcessLimits | None = None) -> None:
        self.limits = limits or ProcessLimits()
        self._kept: _Child | None = None
        self._forget()

    def __reduce__(self) -> tuple[Any, ...]:
        return TemplateProcess, (self.limits,)  # a copy has a process of its own

    def prepare(self, template: str) -> None:
        """Start the process and let it parse a template, without waiting for it; what fails is
        tried again by `render`.
        """
        with suppress(LlamathError), self._child("") as child:
            child.send(self._message({"template": template}))

    def render(
        self,
        template: str,
        source: str,
        special_tokens: Mapping[str, str],
        messages: Sequence[Mapping[str, Any]],
        **options: Any,
    ) -> str:
        """Return the prompt; `origin_runs` tells its template's text from that of the messages.
        Options are those of a template.
        """
        try:
            message = self._message(make_request(template, special_tokens, messages, **options))
        except ValueError as error:  # an integer of more digits than Python writes
            raise template_error(source, str(error)) from None
        with self._child(source) as child:
            answer = child.ask(message)
            if answer.get("exceeded"):  # perhaps all of its memory is in use
                self._end()
        return read_answer(answer, source)

    def _message(self, request: dict[str, Any]) -> _Message:
        data = json.dumps(request, ensure_ascii=False).encode("utf-8", "surrogatepass")
        return _Message(data, self.limits.clock * self.limits.processor_seconds(len(data)))

    @contextmanager
    def _child(self, source: str) -> Iterator[_Child]:
        """Give a process to this thread alone. Whatever goes wrong, Ctrl-C included, ends it."""
        if self._owner != os.getpid():
            self._forget()  # this process was forked: the other one is that of its parent
        with self._lock:
            if self._kept is None or self._kept.process.poll() is not None:
                self._kept = _start(self.limits, source)
            try:
                yield self._kept
            except _Ended as error:
                self._end()
                raise template_error(source, str(error), exceeded=True) from None
            except BaseException:
                self._end()
                raise

    def _end(self) -> None:
        if self._kept is not None:
            self._kept.end()
            self._kept = None

    def _forget(self) -> None:
        self._owner, self._lock, self._kept = os.getpid(), threading.Lock(), None


class OwnTemplates:
    """Renders the templates that this package contains, in this process: no stranger wrote them,
    and the counter bounds their work.
    """

    def prepare(self, template: str) -> None:
        """Do nothing: there is no process to start."""

    def render(
        self,
        template: str,
        source: str,
        special_tokens: Mapping[str, str],
        messages: Sequence[Mapping[str, Any]],
        **options: Any,
    ) -> str:
        """Return what `TemplateProcess.render` returns."""
        return JinjaTemplate(template, source, special_tokens).render(messages, **options)


class _Message(NamedTuple):
    """A request, and the seconds in which it has to be answered."""

    data: bytes
    seconds: float


class _Ended(Exception):
    """The process has ended, or has to be."""


class _Child:
    """A process that renders. Its answer is awaited in a thread, so that it can be given up on
    every system.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.end = weakref.finalize(self, _kill, process, os.getpid())
        self._answers: SimpleQueue[bytes | Exception] = SimpleQueue()
        self._awaited = 0
        self._seconds = 0.0

    def send(self, message: _Message) -> None:
        """Send a request after the answers of those before have come."""
        self._receive_all()
        self._awaited, self._seconds = 1, message.seconds
        most = _MAX_ANSWER + _ANSWER_PER_BYTE * len(message.data)
        threading.Thread(
            target=_converse, args=(self.process, message.data, most, self._answers), daemon=True
        ).start()

    def ask(self, message: _Message) -> dict[str, Any]:
        """Return the answer to a request."""
        self.send(message)
        try:
            answer = json.loads(self._receive_all().decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            raise _Ended("expected an answer in JSON, found something else") from None
        if not isinstance(answer, dict):
            raise _Ended(f"expected a text or an error, found {type(answer).__name__}")
        return answer

    def _receive_all(self) -> bytes:
        """Return the last answer that is awaited, if any."""
        data: bytes | Exception = b""
        until = time.monotonic() + self._seconds
        while self._awaited:
            try:
                data = self._answers.get(timeout=_WAIT_SECONDS)
                self._awaited = 0
            except Empty:
                if time.monotonic() > until:
                    raise _Ended(f"it was stopped after {self._seconds:,.0f} seconds") from None
        if isinstance(data, Exception):
            raise _Ended(f"{data}{_reason(self.process)}")
        return data


def _start(limits: ProcessLimits, source: str) -> _Child:
    """Start a process that answers; it sets its own limits before it reads anything of a file."""
    folders = [_OWN_FOLDER, *(os.path.dirname(_folder_of(x)) for x in ("jinja2", "markupsafe"))]
    if not sys.executable or getattr(sys, "frozen", False):
        raise template_error(
            source,
            "a process of its own would render it, and this program has "
            "no Python interpreter for it",
        )
    is_posix = os.name == "posix"
    bytecode = ["-B"] if sys.dont_write_bytecode else []
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", *bytecode, "-c", _START, json.dumps(folders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=os.path.abspath(os.sep),
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            start_new_session=is_posix,  # Ctrl-C in a terminal reaches this process alone
            creationflags=0 if is_posix else _windows_flags(),
        )
    except OSError as error:
        raise template_error(
            source, f"the process that renders it cannot be started: {error.strerror}"
        ) from None
    child = _Child(process)
    assert process.stdin is not None
    with suppress(OSError):
        write_message(process.stdin, json.dumps(limits).encode())
    return child


def _folder_of(package: str) -> str:
    """Return the folder of an installed package, without importing it; one in the current folder
    is not installed.
    """
    here = {""}
    with suppress(OSError):  # a folder that was deleted
        here.add(os.getcwd())
    spec = PathFinder.find_spec(package, [x for x in sys.path if x not in here])
    if spec is None or spec.origin is None:
        raise MissingExtra(package, "run")
    return os.path.dirname(os.path.abspath(spec.origin))


def _windows_flags() -> int:
    return int(getattr(subprocess, "CREATE_NO_WINDOW", 0)) | int(
        getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
    )


def _converse(
    process: subprocess.Popen[bytes],
    data: bytes,
    most: int,
    answers: SimpleQueue[bytes | Exception],
) -> None:
    """Send a request and put its answer, or what prevented it, into the queue."""
    assert process.stdin is not None and process.stdout is not None
    try:
        write_message(process.stdin, data)
        answers.put(read_message(process.stdout, most) or _Ended(""))
    except LlamathError as error:
        answers.put(_Ended(str(error)))
    except (OSError, ValueError):  # it has ended, or its pipes are closed
        answers.put(_Ended(""))


def _reason(process: subprocess.Popen[bytes]) -> str:
    """Return how the process ended; an empty text if it runs."""
    try:
        code = process.wait(0 if process.poll() is not None else 1)
    except subprocess.TimeoutExpired:
        return "its answer is not complete"
    name = Signals(-code).name if code < 0 and -code in set(Signals) else ""
    if name in ("SIGXCPU", "SIGALRM"):
        return "it was stopped, because it took too long"
    return f"its process ended with {name or f'exit code {code}'}"


def _kill(process: subprocess.Popen[bytes], owner: int) -> None:
    """End a process of this one and take its exit status, so that nothing of it is left."""
    if owner != os.getpid():
        return
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        with suppress(OSError):
            assert stream is not None
            stream.close()
