"""The process that renders chat templates: it answers requests on its standard streams, and can do
little else.

It is started by `TemplateProcess`, with nothing but these streams. Where the system has such
limits, it gives itself a limit of memory for all requests and one of time for each, and none of
files and sockets: it can open no more of them. The kernel ends it at a limit, and when the process
that asks is gone, also while a function in C does not return.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import BinaryIO

from .render_template import answer_request, parse_template
from .template_messages import ProcessLimits, read_message, write_message
from .template_values import Limits, TemplateError

try:
    import fcntl
    import resource
except ImportError:  # Windows has no such limits; the process that asks has one of time
    fcntl, resource = None, None  # type: ignore[assignment]

_ENDS = ("SIGINT", "SIGALRM", "SIGXCPU", "SIGIO", "SIGPIPE")
"""Signals that end this process, whatever it was started with. Ctrl-C in a terminal is the
business of the process that asks."""
_FIRST_TEMPLATE = (
    "{% for x in messages %}{{ x | tojson(indent=1) }}{{ '\\n' ~ strftime_now('%d "
    "%b %Y') }}{{ '%s' % x.role }}{% endfor %}"
)


def serve() -> None:
    """Answer requests until there are no more. The first one has the limits."""
    for name in _ENDS:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    limits = ProcessLimits(*json.loads(read_message(requests)))
    _limit("RLIMIT_CORE", 0)
    for name in ("RLIMIT_AS", "RLIMIT_DATA"):
        _limit(name, limits.memory)
    _import_everything()
    gc.enable()  # the process starts without the collector: importing leaves no garbage
    for name in ("RLIMIT_NOFILE", "RLIMIT_FSIZE"):
        _limit(name, 0)
    while message := read_message(requests):
        request, seconds = (
            json.loads(message.decode("utf-8", "surrogatepass")),
            limits.processor_seconds(len(message)),
        )
        del message
        with _Alarm(requests, seconds, seconds * limits.clock):
            answer = _answer(request)
        write_message(
            answers, json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogatepass")
        )


def _answer(request: Mapping[str, object]) -> dict[str, object]:
    """Return a rendering; of a request without messages, which only announces a template,
    nothing.
    """
    if "messages" in request:
        return answer_request(request, Limits())
    with suppress(TemplateError, MemoryError):
        parse_template(str(request["template"]))
    return {}


def _import_everything() -> None:
    """Render once, so that all modules are imported before no more files can be opened, those of
    errors as well.
    """
    from .template_request import make_request

    for text in (_FIRST_TEMPLATE, "{% if", "{{ [] | "):
        messages = [{"role": "user", "content": "x"}]
        answer_request(
            make_request(text, {}, messages, add_generation_prompt=True, arguments=None, now=None),
            Limits(),
        )


def _limit(name: str, value: int) -> None:
    """Lower a limit of this process, where the system has it."""
    if resource is not None and hasattr(resource, name):
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        lower = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with suppress(OSError, ValueError):  # macOS has limits that it does not let one set
            resource.setrlimit(which, (lower, lower))


class _Alarm:
    """While a request is answered: lets the kernel end this process after a time, and when
    nobody waits for the answer.
    """

    def __init__(self, requests: BinaryIO, processor_seconds: float, seconds: float) -> None:
        self.requests, self.processor_seconds, self.seconds = requests, processor_seconds, seconds

    def __enter__(self) -> None:
        if resource is not None:
            hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
            until = int(time.process_time() + self.processor_seconds) + 1
            soft = until if hard == resource.RLIM_INFINITY else min(until, hard)
            resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, self.seconds)
        self._watch(True)

    def __exit__(self, *_: object) -> None:
        self._watch(False)
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _watch(self, on: bool) -> None:
        """Have SIGIO sent when the pipe of requests is closed."""
        if fcntl is None or not hasattr(os, "O_ASYNC"):
            return
        with suppress(OSError):
            flags = fcntl.fcntl(self.requests, fcntl.F_GETFL)
            fcntl.fcntl(self.requests, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(
                self.requests, fcntl.F_SETFL, flags | os.O_ASYNC if on else flags & ~os.O_ASYNC
            )
        # closed before; nothing else comes before the answer
        if on and select.select([self.requests], [], [], 0)[0]:
            sys.exit()
