"""`open_checkpoint`: the one way to open a checkpoint, given as a path, a repository on the Hub, a
URL or an object-store address.

A repository is read from the local Hugging Face cache if it is there, else from the Hub. Only
headers and small configuration files are read. `find_config` finds a model's configuration without
reading a checkpoint's header, unless it is the metadata of a GGUF file.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..embedded import resolve_name
from ..utils.errors import Call, FormatError, RemoteError, UnknownModel, safe
from ..utils.record_type import Record
from ..utils.strict_json import CONFIG_FILES, read_json
from .quantization_section import quantization_section, with_recipe_file

if TYPE_CHECKING:
    from ..catalog import Preset
    from .formats.choose_files import Shard
    from .formats.manifest import Manifest, Tensor
    from .quantization.packed_tensors import Packing
    from .repo_id import Repo

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model")
"""Files that hold a tokenizer's vocabulary, preferred first."""
MAX_REMOTE_FILES = 4096
"""The most files of a remote checkpoint whose headers are requested."""
_PACKING_DTYPES = frozenset(("U8", "I16", "I32", "I64", "U32"))
"""Dtypes of packed weights for which headers may not determine the number of values per stored
number."""
_PLAIN_DTYPES = frozenset(("F64", "F32", "F16", "BF16", "BOOL", "C64"))
"""Dtypes that are never used for packed weights."""
_STUB_KEYS = 2
"""Maximum number of keys of a config.json that does not describe a model, such as model_type
alone; GGUF folders often have one."""
_NOT_THERE = frozenset(("no_checkpoint", "unreadable"))
"""Codes of errors that say that files are missing, not that they are damaged."""
_UNREACHABLE = frozenset(("offline", "network", "timeout", "dropped"))
"""Codes of errors that say that the Hub cannot be asked."""
_NOT_FOUND = frozenset(("unauthorized", "missing")) | _UNREACHABLE
"""Codes of errors that a misspelled name has."""


class FoundConfig(Record):
    """A model's configuration and where it was found."""

    name: str  # of the model: its folder, repository or GGUF file
    # None: there is no configuration, or it is the metadata of a GGUF file
    keys: Mapping[str, Any] | None
    source: str  # path or address, escaped for display
    folder: str = ""  # the local folder that it lies in
    notes: tuple[str, ...] = ()
    manifest: Manifest | None = None  # of a GGUF file, whose metadata are the configuration
    has_checkpoint: bool = True  # False: the folder contains no checkpoint
    # the given path or address, that of a repository with its commit; empty for a preset or keys
    location: str = ""
    preset: Preset | None = None  # that it comes from


def _status(path: str, status: Callable[[str], os.stat_result]) -> os.stat_result | None:
    """Return the status of a path, None if there is nothing there; an error is no answer."""
    try:
        return status(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        message = f"{safe(path)} cannot be read: {error.strerror}"
        raise FormatError("unreadable", message, file=path) from error


def _is_folder(path: str) -> bool:
    found = _status(path, os.stat)
    return found is not None and stat.S_ISDIR(found.st_mode)


def _is_there(path: str) -> bool:
    return _status(path, os.lstat) is not None


class OpenedCheckpoint(Record):
    """A checkpoint whose headers have been read."""

    name: str  # as the user wrote it; for a repository in the cache, the local path
    manifest: Manifest
    problems: tuple[FormatError, ...] = ()  # of files that could be read only in part
    revision: str = ""  # the commit of a Hub repository
    cached_as: str = ""  # the repository in the cache, as the user wrote it

    @property
    def location(self) -> str:
        """The path, or the address of the remote folder at its commit; both can be given to
        `find_config` and `open_checkpoint`.
        """
        files, index = self.manifest.files, self.manifest.index
        first = files[0].name if files else index.path if index else ""
        return f"{first.rpartition('/')[0]}/" if is_url(first) else self.name

    @property
    def is_remote(self) -> bool:
        """Whether the files are read over a network."""
        return is_url(self.location)

    @property
    def has_local_values(self) -> bool:
        """Whether values can be read from local files."""
        return not self.is_remote

    @property
    def folder(self) -> str:
        """The folder of the files: a local path, or the address of a remote folder."""
        return (
            self.location if self.is_remote or _is_folder(self.name) else os.path.dirname(self.name)
        )

    @property
    def has_config_json(self) -> bool:
        """Whether there is a config.json next to the tensors of a local checkpoint."""
        return _is_there(os.path.join(self.folder, "config.json"))

    @property
    def commit_note(self) -> str:
        """A note with the commit of a Hub repository, or an empty string."""
        if self.cached_as:
            return f"{safe(self.cached_as)} is at commit {self.revision}, in the Hugging Face cache"
        return f"{safe(self.name)} is at commit {self.revision}" if self.revision else ""

    @cached_property
    def config(self) -> FoundConfig:
        """The model's configuration: a GGUF file's metadata, or the config.json or params.json
        next to the tensors.
        """
        if self.manifest.format == "gguf":
            return _config_of_gguf(self.manifest, safe(self.name), self.name)
        return find_config(self.location)

    @cached_property
    def quantization_config(self) -> Mapping[str, Any] | None:
        """The `quantization_config` of the config.json next to the tensors."""
        if self.manifest.format == "gguf":
            return None
        if self.is_remote:
            return quantization_section(read_config(f"{self.location}config.json")[0])
        from .formats.folder import resolve_inside

        path = os.path.join(self.folder, "config.json")
        if not os.path.isfile(path):
            return None
        return quantization_section(
            _read_config_json(path, resolve_inside(self.folder, "config.json"))
        )

    @property
    def packing_config(self) -> Mapping[str, Any] | None:
        """The `quantization_config`, read only if the headers alone may not determine the
        packing of weights.
        """
        return (
            None
            if _PACKING_DTYPES.isdisjoint(self.manifest.columns.dtype)
            else self.quantization_config
        )

    @property
    def tokenizer_files(self) -> tuple[str, ...]:
        """The paths of the tokenizer files next to a local checkpoint, preferred first."""
        return () if self.is_remote else tokenizer_files(self.folder)

    @property
    def tensors_by_name(self) -> dict[str, list[Tensor]]:
        """The tensors by name; a name that occurs in several files has one entry for each."""
        tensors: dict[str, list[Tensor]] = {}
        for x in self.manifest.tensors:
            tensors.setdefault(x.name, []).append(x)
        return tensors

    @property
    def file_notes(self) -> tuple[str, ...]:
        """Notes on files that are missing, on a single shard, and on how the files were chosen."""
        return file_notes(self.manifest)


def open_checkpoint(
    text: str,
    *,
    allow_partial: bool = False,
    local_only: bool = False,
    max_remote_files: int = MAX_REMOTE_FILES,
) -> OpenedCheckpoint:
    """Open the checkpoint with this path or address; an existing path takes precedence over a
    repository on the Hub.

    With `allow_partial`, files that are truncated or malformed are listed in `problems` and read as
    far as possible, unless none of the files can be read. Without it, the first problem is raised.
    With `local_only`, the text is a path. A remote checkpoint of more than `max_remote_files` files
    is refused before their headers are requested.
    """
    text = resolve_name(text)
    problems: list[FormatError] | None = [] if allow_partial else None
    repo = None if local_only else find_repo(text)
    if repo is not None:
        return _open_cached(text, repo, problems) or _open_remote(
            text, repo, problems, max_remote_files
        )
    if local_only or os.path.lexists(text) or not is_url(text):
        from .formats import checkpoint_files

        manifest = checkpoint_files.read_checkpoint(text, problems)
        return OpenedCheckpoint(name=text, manifest=manifest, problems=tuple(problems or ()))
    return _open_remote(text, None, problems, max_remote_files)


def _open_cached(
    text: str, repo: Repo, problems: list[FormatError] | None
) -> OpenedCheckpoint | None:
    """Open a checkpoint in the local Hugging Face cache; None if it is not there with all of its
    files.
    """
    from .hub_cache import find_cached

    if (cached := find_cached(repo)) is None or not os.path.lexists(cached.path):
        return None
    from .formats import checkpoint_files

    try:
        manifest = checkpoint_files.read_checkpoint(cached.path, problems, is_repository=True)
    except FormatError as error:
        if error.code in _NOT_THERE:
            return None
        raise
    if manifest.missing_files:
        return None
    return OpenedCheckpoint(
        name=cached.path,
        manifest=manifest,
        problems=tuple(problems or ()),
        revision=cached.commit,
        cached_as=text,
    )


def _open_remote(
    text: str, repo: Repo | None, problems: list[FormatError] | None, max_files: int
) -> OpenedCheckpoint:
    """Open a checkpoint on the Hub, a web server or in an object store."""
    if problems is not None:
        problems.clear()
    if repo is not None:
        _require_hub(text, repo)
    from .hub import read_remote

    try:
        manifest, revision = read_remote(
            repo.address if repo else text, problems=problems, max_files=max_files
        )
    except RemoteError as error:
        raise _with_nearest_ids(error, repo) from None
    return OpenedCheckpoint(
        name=text, manifest=manifest, problems=tuple(problems or ()), revision=revision
    )


def local_copy(text: str, report: Callable[[str], object] = lambda _: None) -> str:
    """Return the path of a checkpoint whose weights are needed: a repository on the Hub is
    downloaded to the Hugging Face cache.

    `report` is called with a line about a download before it begins, and about the commit of a
    repository in the cache.
    """
    text = resolve_name(text)
    if (repo := find_repo(text)) is None:
        if not os.path.lexists(text):
            _raise_if_preset(text)
        return text
    opened = _open_cached(text, repo, [])
    if opened is not None and (opened.manifest.format == "gguf" or opened.tokenizer_files):
        report(opened.commit_note)
        return opened.name
    try:
        _require_hub(text, repo)
        from .hub.download import download

        return download(repo, report)
    except RemoteError as error:
        if opened is None or error.code not in _UNREACHABLE:
            raise _with_nearest_ids(error, repo) from None
        report(f"{opened.commit_note}; the Hub cannot be asked for its other files ({error})")
        return opened.name


def cached_copy(text: str) -> str | None:
    """Return the path of a repository's checkpoint in the Hugging Face cache, or None; nothing is
    requested.

    It is for names that a file contains: a stranger's file never causes a download.
    """
    repo = find_repo(text)
    opened = None if repo is None else _open_cached(text, repo, [])
    return None if opened is None else opened.name


def _raise_if_preset(text: str) -> None:
    """Raise an error if a text is the name of a preset, which has no weights."""
    from ..catalog import find_preset

    try:
        preset = find_preset(text)
    except UnknownModel:
        return
    hint = (
        f"{preset.ids[0]} downloads its weights from the Hub"
        if preset.ids
        else ("give a folder, a file, or a repository on the Hub")
    )
    raise UnknownModel(
        f"{safe(text)} is a preset, which has a configuration and no weights", hint=hint
    )


def find_repo(text: str) -> Repo | None:
    """Return the repository on the Hub that a text names; None for an existing path and for
    everything else.
    """
    if "/" not in text or text.startswith((".", "/", "~")) or os.path.lexists(text):
        return None
    from .repo_id import parse_repo

    return parse_repo(text)


def _require_hub(text: str, repo: Repo) -> None:
    """Raise if a repository must not be looked up on the Hub: offline, if the text is a path in
    an existing folder, or if it is the id of a preset with a wrong letter.
    """
    from .hub_cache import cache_folder, find_cached
    from .repo_id import is_offline

    cached = find_cached(repo)
    if cached is None and text == repo.id:
        from ..catalog import find_public_id, misspelled_ids

        if find_public_id(text) is None and (near := misspelled_ids(text)):
            raise UnknownModel(
                f"{safe(text)} is not known here, and one letter differs from {' and '.join(near)}",
                hint=f"did you mean {near[0]}? hf://{safe(text)} asks the Hub for this name",
            )
    if is_offline():
        found = (
            "is incomplete in the Hugging Face cache"
            if cached
            else ("does not exist here and is not in the Hugging Face cache")
        )
        message = (
            f"{safe(text)} {found} {safe(cache_folder())}, and HF_HUB_OFFLINE forbids to "
            "ask the Hub"
        )
        hint = "unset HF_HUB_OFFLINE, or give the path of a local copy"
        raise _with_nearest_ids(RemoteError("offline", message, hint=hint), repo)
    folder = text.partition("/")[0]
    if cached is None and "@" not in text and not is_url(text) and os.path.isdir(folder):
        message = f"{safe(text)} cannot be read: no such file in the folder {safe(folder)}"
        raise FormatError("unreadable", message, hint=f"hf://{safe(text)} reads it from the Hub")


def _with_nearest_ids(error: RemoteError, repo: Repo | None) -> RemoteError:
    """Return the error for a repository that cannot be read, with the most similar public ids of
    presets.
    """
    if repo is None or error.code not in _NOT_FOUND:
        return error
    from ..catalog import nearest_ids

    near = nearest_ids(repo.id)
    message = str(error)
    if error.code in _UNREACHABLE - {"offline"}:
        message = f"{safe(repo.id)} is not known here, and the Hub cannot be asked: {error}"
    elif error.code != "offline":
        message = f"{safe(repo.id)} does not exist here and cannot be read from the Hub: {error}"
    return RemoteError(
        error.code,
        message,
        hint=f"did you mean {' or '.join(near)}? {error.hint}" if near else error.hint,
    )


def find_config(text: str, problems: list[FormatError] | None = None) -> FoundConfig:
    """Find the configuration of the model at a path or address.

    In a folder, a config.json or params.json takes precedence over the metadata of a GGUF file,
    unless it is a stub. Given `problems`, a GGUF file that is too short is listed there, and its
    metadata are used.
    """
    if (repo := find_repo(text)) is not None:
        return _find_repo_config(text, repo, problems)
    if is_url(text) and not os.path.lexists(text):
        return _find_remote_config(text, problems)
    if os.path.isdir(text):
        return _find_config_in_folder(text, problems)
    from .formats.checkpoint_files import read_checkpoint
    from .formats.choose_files import EXTENSIONS

    folder = os.path.dirname(text)
    is_checkpoint = text.endswith((*EXTENSIONS, ".index.json"))
    is_json = text.endswith(".json") and not is_checkpoint
    if text.endswith(".gguf") or not (is_checkpoint or is_json or not _begins_as_gguf(text)):
        return _config_of_gguf(read_checkpoint(text, problems), safe(text), text)
    notes = []
    if not is_json and not text.endswith(".index.json"):
        _refuse_broken(text, "a checkpoint" if is_checkpoint else "JSON")
    if is_checkpoint:
        keys, path = _read_config_in(folder)
        if keys is not None and not text.endswith(".index.json"):
            notes.append(beside_note(safe(path), text))
    else:
        keys, path = _read_config_json(text), text
    stem, _ = os.path.splitext(file := os.path.basename(text))
    return FoundConfig(
        # a folder may have configurations of several models, under names of their own
        name=_folder_name(folder, text) if is_checkpoint or file in CONFIG_FILES else safe(stem),
        keys=keys,
        source=safe(path or text),
        folder=folder or ".",
        notes=tuple(notes),
    )


def _refuse_broken(path: str, expected: str) -> None:
    """Raise an error if a file that was named is something else: a pointer, a web page, an
    unfinished download.
    """
    from ..utils.file_diagnosis import HEAD_BYTES, diagnose
    from .formats.source import LocalFile

    with LocalFile(path) as file:
        if found := diagnose(file.read(0, min(HEAD_BYTES, file.size)), path, file.size, expected):
            raise FormatError(found.code, found.message, hint=found.hint)


def beside_note(source: str, path: str) -> str:
    """Return the note on a file of weights whose configuration is another file next to it."""
    return f"the model is that of {source}; {Call('count', path)} counts the parameters in the file"


def _find_repo_config(text: str, repo: Repo, problems: list[FormatError] | None) -> FoundConfig:
    """Find the configuration of a repository: in the local Hugging Face cache, else on the Hub."""
    from .hub_cache import find_cached

    cached = find_cached(repo)
    if cached is not None and cached.has_config:
        found = find_config(cached.path, problems)
        return found.replace(
            name=found.name if repo.path.endswith(".gguf") else safe(repo.name),
            location=cached.address,
        )
    _require_hub(text, repo)
    try:
        found = _find_remote_config(repo.address, problems)
    except RemoteError as error:
        raise _with_nearest_ids(error, repo) from None
    at = find_repo(found.source)
    return found.replace(
        location=repo._replace(revision=at.revision if at else repo.revision).address
    )


def read_config(address: str) -> tuple[Mapping[str, Any], str]:
    """Read the configuration at an address; returns its keys and the address of the file."""
    from .hub import read_config as read

    return read(address)


def read_config_file(opened: OpenedCheckpoint, name: str) -> Mapping[str, Any] | None:
    """Read a JSON file next to the tensors, local or remote; None if there is none."""
    if opened.is_remote:
        from .hub import read_config as read

        try:
            return read(f"{opened.location}{name}")[0]
        except RemoteError as error:
            if error.code != "missing":
                raise
            return None
    from .formats.folder import resolve_inside

    return (
        read_json(resolve_inside(opened.folder, name))
        if os.path.lexists(os.path.join(opened.folder, name))
        else None
    )


def packings_of(
    manifest: Manifest, quantization: Mapping[str, Any] | None = None
) -> Mapping[str, Packing]:
    """Return the packings of tensors by name; `quantization` is the config's section on packed
    weights.

    If no dtype suggests any, the producers of quantizations are not imported.
    """
    if _PLAIN_DTYPES.issuperset(manifest.columns.dtype):
        return {}
    from .quantization.registry import find_packings

    return find_packings(manifest.tensors, quantization)


def file_notes(manifest: Manifest) -> tuple[str, ...]:
    """Return notes on files that are missing, on a single shard, and on how the files were
    chosen.
    """
    from ..utils.file_diagnosis import missing_hint

    notes = [missing_shards_note(manifest)] if manifest.missing_files else []
    if manifest.missing_index:
        index = safe(manifest.missing_index, 80)
        notes.append(
            f"{index}, by which loaders find the shards, is missing; "
            f"{missing_hint(manifest.folder, [index])}"
        )
    if shard := single_shard(manifest):
        notes.append(
            f"this is shard {shard.number:,} of {shard.total:,}: the other tensors of "
            "the model are in the others"
        )
    return (*notes, *manifest.notes)


def single_shard(manifest: Manifest) -> Shard | None:
    """Return the place of a file in its set if it was opened alone; None for whole checkpoints."""
    from .formats.choose_files import parse_shard

    if len(manifest.files) != 1 or manifest.index is not None or manifest.missing_index:
        return None
    shard = parse_shard(os.path.basename(manifest.files[0].name))
    return shard if shard is not None and shard.total > 1 else None


def missing_shards_note(manifest: Manifest) -> str:
    """Return a note about files of the checkpoint that are missing, with the command that
    downloads them, or an empty string.
    """
    missing = manifest.missing_files
    if not missing:
        return ""
    from ..utils.file_diagnosis import missing_hint

    first, named = safe(missing[0], 80), "named in the index " if manifest.index else "of the set "
    if len(missing) == 1:
        note = f"1 file {named}is missing ({first}), with its tensors"
    else:
        note = f"{len(missing):,} files {named}are missing ({first}, …), with their tensors"
    return f"{note}; {missing_hint(manifest.folder, missing)}"


def tokenizer_files(folder: str) -> tuple[str, ...]:
    """Return the paths of the tokenizer files in a local folder, preferred first."""
    from .formats.folder import resolve_inside

    return tuple(
        resolve_inside(folder, name)
        for name in TOKENIZER_FILES
        if os.path.lexists(os.path.join(folder, name))
    )


def names_checkpoint(text: str) -> bool:
    """Whether a text names something that may be a checkpoint: a path, an address or a
    repository, and not a configuration file.
    """
    return (os.path.lexists(text) or is_remote_name(text)) and (
        not text.endswith(".json") or text.endswith(".index.json")
    )


def is_remote_name(text: str) -> bool:
    """Whether a text is an address or the name of a repository on the Hub, and not an existing
    path.
    """
    return not os.path.lexists(text) and (is_url(text) or find_repo(text) is not None)


def is_url(text: str) -> bool:
    """Whether a text is an address with a scheme: `hf://`, `https://`, `s3://`."""
    return "://" in text and re.match(r"[a-z][a-z0-9]{1,9}://", text) is not None


def _read_config_in(folder: str) -> tuple[Mapping[str, Any] | None, str]:
    """Return the configuration in a local folder and its path, or None and an empty string."""
    from .formats.folder import check_finished, resolve_inside

    check_finished(folder)
    name = next((x for x in CONFIG_FILES if os.path.lexists(os.path.join(folder, x))), "")
    if not name:
        return None, ""
    path = resolve_inside(folder, name)
    return _read_config_json(os.path.join(folder, name), path), path


def _read_config_json(path: str, resolved: str = "") -> Mapping[str, Any]:
    """Read a local configuration, a config.json with the recipe in a file next to it; `resolved`
    is the path without links.
    """
    from .formats.folder import resolve_inside

    folder, name = os.path.split(path)

    def read(other: str) -> Mapping[str, Any] | None:
        return (
            read_json(resolve_inside(folder or ".", other))
            if os.path.isfile(os.path.join(folder, other))
            else None
        )

    keys = read_json(resolved or path, finite=False)
    return with_recipe_file(keys, read) if name == "config.json" else keys


def _find_config_in_folder(folder: str, problems: list[FormatError] | None) -> FoundConfig:
    keys, path = _read_config_in(folder)
    has_checkpoint = True
    if keys is None or len(keys) <= _STUB_KEYS:
        from .formats.checkpoint_files import read_checkpoint
        from .formats.choose_files import EXTENSIONS
        from .formats.folder import LocalFolder
        from .formats.folder_kind import folder_kind

        files = LocalFolder(folder).names()
        has_checkpoint = any(x.endswith(EXTENSIONS) for x in files) or bool(folder_kind(files))
        if (
            any(x.endswith(".gguf") for x in files)
            and (manifest := read_checkpoint(folder, problems)).format == "gguf"
        ):
            return _config_of_gguf(manifest, safe(manifest.files[0].name), folder)
    name = _folder_name(folder, path or folder)
    return FoundConfig(
        name=name,
        keys=keys,
        source=safe(path or folder),
        folder=folder,
        has_checkpoint=has_checkpoint,
    )


def _find_remote_config(address: str, problems: list[FormatError] | None) -> FoundConfig:
    if address.endswith(".gguf") and (found := _find_remote_gguf(address, problems)) is not None:
        return found
    from .hub import find_config as find_remote

    keys, source = find_remote(address)
    if (keys is None or len(keys) <= _STUB_KEYS) and (
        found := _find_remote_gguf(address, problems, optional=True)
    ) is not None:
        return found
    if keys is None:
        keys, source = read_config(address)
    return FoundConfig(
        name=safe(os.path.basename(os.path.dirname(source)).partition("@")[0]),
        keys=keys,
        source=safe(source),
    )


def _find_remote_gguf(
    address: str, problems: list[FormatError] | None, optional: bool = False
) -> FoundConfig | None:
    """Return the configuration in the metadata of a GGUF file; with `optional`, None for a
    folder without GGUF files.
    """
    try:
        opened = open_checkpoint(address, allow_partial=problems is not None)
    except (FormatError, RemoteError) as error:
        if optional and error.code in ("no_checkpoint", "listing"):
            return None
        raise
    if optional and opened.manifest.format != "gguf":
        return None
    if problems is not None:
        problems += opened.problems
    config = _config_of_gguf(opened.manifest, safe(address), address)
    notes = (opened.commit_note, *config.notes) if opened.commit_note else config.notes
    name = (
        address.rpartition("/")[2]
        if address.endswith(".gguf")
        else opened.manifest.files[0].name.rpartition("/")[2]
    )
    return config.replace(name=safe(name), folder="", notes=notes)


def _config_of_gguf(manifest: Manifest, source: str, path: str) -> FoundConfig:
    """Return the configuration in the metadata of a GGUF file, which `families.gguf_config`
    translates to keys.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    name = safe(os.path.basename(os.path.abspath(path)))
    return FoundConfig(name=name, keys=None, source=source, folder=folder, manifest=manifest)


def _folder_name(folder: str, path: str) -> str:
    """Return the name of a folder; that of a revision in the Hugging Face cache is the name of
    its repository.
    """
    path_of_folder = os.path.abspath(folder)
    if cached := re.search(r"/models--([^/]{1,200})/snapshots/[0-9a-f]{40,64}\Z", path_of_folder):
        return safe(cached[1].rpartition("--")[2])
    return safe(os.path.basename(path_of_folder) or path)


def _begins_as_gguf(path: str) -> bool:
    """Whether a file without a known extension begins as a GGUF file does: the blobs of some
    programs' stores do.
    """
    from .formats.source import LocalFile

    with LocalFile(path) as file:
        return file.read(0, min(4, file.size)) == b"GGUF"
