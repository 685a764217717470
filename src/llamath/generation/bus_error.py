"""Report a weight file that is truncated while it is mapped: the system then sends SIGBUS, which
ends a process without a message.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from weakref import WeakSet

from ..utils.errors import FormatError
from .mapped_files import MappedFiles

_MAPPED: WeakSet[MappedFiles] = WeakSet()


def exit_on_bus_error(report: Callable[[FormatError], object]) -> None:
    """From now on, call `report` and exit with status 2 if a mapped file cannot be read; only the
    main thread may call this.

    The fault repeats as long as its handler returns, so that no Python code runs in the thread that
    reads the weights. Python's handler writes the number of the signal to a socket, which another
    thread reads: torch's operations release Python's lock.
    """
    if not hasattr(signal, "SIGBUS") or threading.current_thread() is not threading.main_thread():
        return
    if (previous := signal.set_wakeup_fd(-1)) >= 0:
        signal.set_wakeup_fd(previous)  # of an event loop, or of an earlier call
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGBUS, lambda _number, _frame: None)

    def watch() -> None:
        with sender, receiver:
            while received := receiver.recv(1):
                if received[0] == signal.SIGBUS:
                    try:
                        report(_describe())
                    finally:
                        os._exit(2)

    threading.Thread(target=watch, name="bus errors", daemon=True).start()


def watch_files(files: MappedFiles) -> None:
    """Name these files if one of them is the reason of a bus error."""
    _MAPPED.add(files)


def _describe() -> FormatError:
    for files in tuple(_MAPPED):
        try:
            files.check_sizes()
        except FormatError as error:
            return error
    return FormatError(
        "changed",
        "a weight file could not be read while the model was running",
        hint="check the disk: dmesg, smartctl",
    )
