"""`run_as`: call a function in a forked process as another user; skips where this user may not become another one."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest


def run_as(uid: int, work: Callable[[], str]) -> str:
    """Return what the function returns as this user."""
    if not hasattr(os, "fork") or os.geteuid():
        pytest.skip("only root becomes another user")
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.write(write, work().encode())
            status = 0
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(status)
    os.close(write)
    with open(read, "rb") as file:
        text = file.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status and "PermissionError" in text and "not permitted" in text:
        pytest.skip("this process may not become another user")
    assert status == 0, text
    return text
