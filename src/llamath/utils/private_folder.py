"""Folders of this user that no other user can change: what is executed or trusted without a look is
kept in them only.

Needs only the standard library, as the native engine is compiled before anything is installed.
"""

from __future__ import annotations

import os
import stat

from .errors import safe

_MAX_LINKS = 40
"""As many as Linux follows in a path."""


def user_folder(variable: str, default: str) -> str | None:
    """Return the folder `llamath` in the folder of an XDG variable, or of a default in the user's
    home; None if neither is known.

    As the XDG specification asks, a path that is not absolute is ignored; a home of which a shell
    left `~` is none either.
    """
    base = os.environ.get(variable, "")
    if os.path.isabs(base):
        return os.path.join(base, "llamath")
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):
        try:
            import pwd

            home = pwd.getpwuid(os.geteuid()).pw_dir
        except (ImportError, KeyError):
            return None
    return os.path.join(home, default, "llamath") if os.path.isabs(home) else None


def find_foreign(path: str) -> str:
    """Return why another user could change what is at an absolute path, or replace it; an empty
    string if none but root can.

    Each component, and each link on the way, must belong to this user or to root, and others must
    not be able to write to it. They may write to a folder with the sticky bit (/tmp), in which only
    owners rename and delete, but not where this is the last component. A path that does not exist
    is judged by the components that do; what is created there belongs to this user.
    """
    if not hasattr(os, "geteuid"):
        return ""
    owners, links = {0, os.geteuid()}, 0
    at, left = "/", [x for x in path.split("/") if x]
    while True:
        try:
            found = os.lstat(at)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{safe(at)}: {error.strerror}"
        if found.st_uid not in owners:
            return f"{safe(at)} belongs to user {found.st_uid}"
        if stat.S_ISLNK(found.st_mode):  # of the writable bits that a link has, none means anything
            links += 1
            target = os.readlink(at)
            if links > _MAX_LINKS:
                return f"{safe(path)} has too many links"
            at, left = (
                "/" if os.path.isabs(target) else os.path.dirname(at),
                [*(x for x in target.split("/") if x), *left],
            )
            if not left:
                return _writable("/", os.lstat("/"), is_last=True)
        elif problem := _writable(at, found, is_last=not left):
            return problem
        elif left and not stat.S_ISDIR(found.st_mode):
            return f"{safe(at)} is not a folder"
        if not left:
            return ""
        name, left = left[0], left[1:]
        at = os.path.dirname(at) if name == ".." else os.path.join(at, name) if name != "." else at


def _writable(path: str, found: os.stat_result, *, is_last: bool) -> str:
    """Return who could write there besides its owner; a list of access rights (ACL) counts as
    the bits of the group.
    """
    if not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return ""
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX and not is_last:
        return ""
    return f"{'others' if found.st_mode & stat.S_IWOTH else 'its group'} can write to {safe(path)}"


def make_private_folder(path: str) -> str:
    """Create a folder, and those that it is in, for this user alone; returns why others could
    change it, or an empty string.
    """
    if problem := find_foreign(os.path.join(path, "any")):
        return problem
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    try:
        for folder in reversed(missing):
            try:
                os.mkdir(folder, 0o700)
            except FileExistsError:  # another process has created it
                if not os.path.isdir(folder):
                    raise
    except OSError as error:
        return f"{safe(error.filename or path)} cannot be created: {error.strerror}"
    return find_foreign(missing[0] if missing else path)
