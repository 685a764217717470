"""The compiled library is loaded only from where no other user can have put or changed it."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llamath.native import library, library_cache
from llamath.utils.private_folder import find_foreign, make_private_folder, user_folder
from llamath_native import build
from support.forked import run_as

NOBODY = 65534


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache with something in the place of the library, and a package without one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    place = library_cache.cached_library()
    assert place is not None and place.parent.parent == tmp_path / "cache" / "llamath"
    place.parent.mkdir(parents=True, mode=0o755)
    place.write_bytes(b"")
    for path in (place, place.parent, place.parent.parent, tmp_path / "cache"):
        path.chmod(0o755)
    library.load_library.cache_clear()
    yield place
    library.load_library.cache_clear()


def test_library_that_others_could_replace_is_not_found(cache: Path, tmp_path: Path) -> None:
    assert library._find() == cache
    folder, llamath, base = cache.parent, cache.parent.parent, tmp_path / "cache"
    for path, mode in (
        (cache, 0o666),
        (cache, 0o664),
        *((x, y) for x in (folder, llamath, base) for y in (0o777, 0o775)),
    ):
        path.chmod(mode)
        assert library._find() is None, (path, oct(mode))
        assert f"can write to {path}" in find_foreign(str(cache))
        path.chmod(0o755)
    folder.chmod(
        0o1777
    )  # in a folder like /tmp, only what is below another one of this user is safe
    assert library._find() is None
    folder.chmod(0o755)
    base.chmod(0o1777)
    assert library._find() == cache
    other = tmp_path / "other"
    shutil.copytree(folder, other / folder.name)
    shutil.rmtree(folder)
    folder.symlink_to(os.path.join("..", "..", "other", folder.name))
    assert library._find() == cache, "a link of this user to a folder of this user"
    other.chmod(0o777)
    assert library._find() is None, "a link to where others can write"
    other.chmod(0o700)
    folder.unlink()
    folder.mkdir(mode=0o700)
    cache.symlink_to(tmp_path / "shared.so")
    (tmp_path / "shared.so").write_bytes(b"")
    (tmp_path / "shared.so").chmod(0o666)
    assert library._find() is None, "a link to a file that others can write"
    cache.unlink()
    cache.symlink_to(cache)
    assert "too many links" in find_foreign(str(cache)) and library._find() is None
    cache.unlink()
    cache.mkdir()
    assert library._find() is None, "a folder"


def test_relative_cache_paths_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    home = pwd.getpwuid(os.geteuid()).pw_dir
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for given in ("cache", "~/.cache", "$HOME/.cache", ".", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert user_folder("XDG_CACHE_HOME", ".cache") == str(
            tmp_path / "home" / ".cache" / "llamath"
        ), given
    for given in ("~", "home", ""):
        monkeypatch.setenv("HOME", given)
        assert user_folder("XDG_CACHE_HOME", ".cache") == os.path.join(home, ".cache", "llamath"), (
            given
        )

    def nobody(uid: int) -> Any:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in (None, "~", "here"):
        if name is None:
            monkeypatch.delenv("HOME")
        else:
            monkeypatch.setenv("HOME", name)
        planted = (
            tmp_path
            / (name or "~")
            / ".cache"
            / "llamath"
            / f"native-{build.source_hash(build.find_compiler() or '')}"
        )
        planted.mkdir(parents=True, exist_ok=True)
        (planted / build.LIBRARY).write_bytes(b"")
        assert library_cache.cached_library() is None and library._find() is None, name


def test_cache_folders_are_made_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "deep" / "cache"))
    monkeypatch.setattr(build, "_run", lambda command: Path(command[-1]).write_bytes(b"compiled"))
    monkeypatch.setattr(library_cache, "find_compiler", lambda: "c++")
    before = os.umask(0)
    try:
        path = library_cache.build_cached()
    finally:
        os.umask(before)
    assert path.read_bytes() == b"compiled" and stat.S_IMODE(path.stat().st_mode) == 0o644
    for folder in list(path.parents)[:4]:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    assert library_cache.find_cached() == (path, "")
    (tmp_path / "deep").chmod(0o777)
    with pytest.raises(build.CompilerError, match="others can write to"):
        library_cache.build_cached()
    with pytest.raises(SystemExit, match="others can write to"):
        library_cache.main([])
    (tmp_path / "file").write_text("")
    assert "cannot be created" in make_private_folder(
        str(tmp_path / "file" / "x")
    ) or "not a folder" in make_private_folder(str(tmp_path / "file" / "x"))


def test_untrusted_cache_compiles_into_a_private_folder(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").chmod(0o777)
    loaded, before = [], cache.read_bytes()

    def stub(target: Path, extra: Any = (), paths: Any = ()) -> Path:
        assert stat.S_IMODE(target.parent.stat().st_mode) == 0o700 and not find_foreign(
            str(target.parent)
        )
        target.write_bytes(b"compiled")
        return target

    def load(path: Path) -> str:
        loaded.append((path, path.read_bytes()))
        return "a library"

    monkeypatch.setattr(build, "build", stub)
    monkeypatch.setattr(library, "Library", load)
    monkeypatch.setattr(build, "find_compiler", lambda: "c++")
    assert library.find_library() is None, "what only asks compiles nothing"
    assert [library.load_library(), library.load_library()] == ["a library"] * 2
    ((path, data),) = loaded
    assert data == b"compiled" and not path.parent.exists() and cache.read_bytes() == before
    said = capsys.readouterr().err
    assert said.count("note: ") == 1 and f"others can write to {tmp_path / 'cache'}" in said
    library.load_library.cache_clear()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "cache"))
    with pytest.raises(library.NoLibrary, match="not compiled where others could change it"):
        library.load_library()


def test_library_of_another_user_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as place:
        shared = Path(place) / "shared"
        shared.mkdir()
        for folder, mode in ((Path(place), 0o755), (shared, 0o1777)):
            folder.chmod(mode)
        monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
        monkeypatch.setattr(build, "FOLDER", shared)
        target = library_cache.cached_library()
        assert target is not None

        def plant() -> str:
            target.parent.mkdir(parents=True)
            target.write_bytes(b"")
            return str(library._find())

        assert run_as(NOBODY, plant) == str(target), "the planter's own"
        assert library._find() is None and "belongs to user 65534" in find_foreign(str(target))
        shutil.rmtree(shared / "llamath")
        link = shared / "llamath"  # a link of another user, to a folder of this one
        mine = Path(place) / "mine"
        mine.mkdir(mode=0o700)
        shutil.copytree(Path(place) / "shared", mine / "llamath", dirs_exist_ok=True)
        run_as(NOBODY, lambda: str(link.symlink_to(mine)))
        assert "belongs to user 65534" in find_foreign(str(target))
        link.unlink()
        assert run_as(NOBODY, lambda: library_cache.find_cached()[1]) == ""
        home = Path(place) / "home"  # root with the home of another user, as in containers
        home.mkdir(mode=0o700)
        os.chown(home, 1000, 1000)
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(home))
        assert f"{home} belongs to user 1000" in library_cache.find_cached()[1]
