"""`choose_files`: the files of a folder that are its checkpoint, as transformers and llama.cpp
choose them.

transformers 5.23: `transformers_weights` of config.json (modeling_utils.py,
`_get_resolved_checkpoint_files`) comes before the standard names; with an adapter_config.json
(integrations/peft.py, `maybe_load_adapters`) the base model is loaded from where it says, unless a
local folder has a config.json of its own: then the folder is the base model, and the adapter is
applied to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...utils.errors import ConfigError, FormatError, RemoteError, safe
from ...utils.file_diagnosis import download_command, is_unfinished, unfinished_in
from .folder import Folder, LocalFolder
from .folder_kind import ADAPTER_CONFIG, kind_error

STANDARD_NAMES = tuple(
    f"{name}{index}"
    for name in ("model.safetensors", "pytorch_model.bin")
    for index in ("", ".index.json")
)
"""File names that loaders look for, in order: transformers prefers a single file to an index,
and safetensors to other formats."""
INDEX_EXTENSIONS = (".safetensors.index.json", ".bin.index.json")
EXTENSIONS = (".safetensors", ".gguf", ".pth", ".pt", ".bin", ".ckpt", ".npz")
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin", "adapters.safetensors")
"""The files of an adapter's weights: two of peft, one of mlx-lm."""
_TRAINING_FILES = re.compile(
    r"(?:optimizer|scheduler|scaler|rng_state(?:_\d{1,6})?|training_args"
    r"|random_states_\d{1,6})\.(?:pt|pth|bin)"
)
"""Files of a training run that lie next to the weights and are none."""
_SHARD = re.compile(
    r"(?P<stem>.{1,200})-(?P<number>\d{3,6})-of-(?P<count>\d{3,6})(?P<extension>\.safetensors"
    r"|\.bin|\.pt|\.pth)",
    re.DOTALL,
)
_MAX_SHARDS = 100_000


class ChosenFiles(NamedTuple):
    """The files of a checkpoint, or the index that names them."""

    names: Sequence[str]
    missing: tuple[str, ...] = ()  # files of the same set that the folder lacks
    missing_index: str = ""  # without which transformers does not find the files
    notes: tuple[str, ...] = ()  # on why these files
    subfolder: str = ""  # in which they are

    @property
    def index_name(self) -> str:
        """The name of the index; empty if the files are named themselves."""
        return (
            self.names[0]
            if len(self.names) == 1 and self.names[0].endswith(INDEX_EXTENSIONS)
            else ""
        )


class Shard(NamedTuple):
    """The place of a file in a set like `model-00002-of-00006.safetensors`."""

    number: int  # from 1
    total: int
    names: Sequence[str]  # all files of the set


def parse_shard(name: str) -> Shard | None:
    """Return the place of a file in its set by its name; None for other names."""
    match = _SHARD.fullmatch(name)
    if match is None or not 1 <= int(match["number"]) <= int(match["count"]) <= _MAX_SHARDS:
        return None
    width, count = len(match["number"]), match["count"]
    names = [
        f"{match['stem']}-{i:0{width}}-of-{count}{match['extension']}"
        for i in range(1, int(count) + 1)
    ]
    return Shard(int(match["number"]), int(count), names)


def choose_files(folder: Folder, entries: Sequence[str]) -> ChosenFiles:
    """Return the checkpoint of a folder with these entries; raise if there is none, or more than
    one.
    """
    try:
        return _choose_files(folder, entries)
    except FormatError as error:
        if error.code == "no_checkpoint" and ADAPTER_CONFIG in entries:
            message = (
                f"{safe(folder.name)}: expected the weights of an adapter beside "
                f"{ADAPTER_CONFIG}, found none"
            )
            raise FormatError(
                "no_checkpoint", message, hint=f"download them, too: {' or '.join(ADAPTER_FILES)}"
            ) from None
        if (
            error.code not in ("no_checkpoint", "ambiguous")
            or (other := kind_error(folder.name, entries)) is None
        ):
            raise
        raise other from None


def _choose_files(folder: Folder, entries: Sequence[str]) -> ChosenFiles:
    explicit = _transformers_weights(folder, entries) if folder.is_read_by_transformers else ""
    standard = next((x for x in STANDARD_NAMES if x in entries), "")
    notes: tuple[str, ...] = ()
    if ADAPTER_CONFIG in entries:
        adapter = next((x for x in ADAPTER_FILES if x in entries), "")
        base = explicit or standard
        if (
            isinstance(folder, LocalFolder)
            and not folder.is_repository
            and base
            and "config.json" in entries
        ):
            weights = (
                f"the adapter in {adapter}"
                if adapter
                else (f"an adapter ({ADAPTER_CONFIG}), whose weights are missing")
            )
            notes = (f"{safe(base)} is the base model; transformers also loads {weights}",)
        elif adapter:
            left_out = (
                f"{safe(base)} is left out: transformers loads {adapter} and the base "
                f"model that {ADAPTER_CONFIG} names"
            )
            return ChosenFiles([adapter], notes=(left_out,) if base else ())
        elif base:
            raise _base_and_adapter(folder, base)
    if explicit:
        subfolder, _, name = explicit.rpartition("/")
        return ChosenFiles([name], notes=notes, subfolder=subfolder)
    indexes = [x for x in entries if x.endswith(INDEX_EXTENSIONS)]
    if name := next(
        (x for x in (standard, "consolidated.safetensors", *indexes[:1]) if x and x in entries), ""
    ):
        return ChosenFiles([name], notes=notes)
    if meta_shard := next(
        (x for x in entries if x.startswith("consolidated.") and x.endswith(".pth")), None
    ):
        from .torch_files.torch_checkpoint import siblings

        return ChosenFiles(siblings(meta_shard, entries))
    return _only_set(folder, entries)


def _only_set(folder: Folder, entries: Sequence[str]) -> ChosenFiles:
    """Return the only file, or the only set of files, in a folder without a standard name or an
    index.
    """
    found = [x for x in entries if x.endswith(EXTENSIONS)]
    names = [x for x in found if not _TRAINING_FILES.fullmatch(x)] or found
    if not names:
        raise _no_checkpoint(folder, entries)
    if len(names) > 1 and all(x.endswith(".gguf") for x in names):
        from .gguf_choices import choose_gguf

        chosen, notes = choose_gguf(folder, names)
        return ChosenFiles(gguf_parts(chosen[0]), notes=notes)
    shard = parse_shard(names[0])
    parts = shard.names if shard else gguf_parts(names[0])
    if not set(names) <= set(parts):
        message = (
            f"{safe(folder.name)} contains {len(names)} checkpoint files without an index: "
            f"{list_names(names)}"
        )
        raise FormatError("ambiguous", message, hint="name one of them")
    if shard is None:
        return ChosenFiles(parts)
    present = set(names)
    missing = tuple(x for x in parts if x not in present)
    start = names[0][: names[0].rindex("-of-")].rpartition("-")[0]
    index = f"{start}{'.bin' if names[0].endswith('.bin') else '.safetensors'}.index.json"
    return ChosenFiles([x for x in parts if x in present], missing, index)


def _transformers_weights(folder: Folder, entries: Sequence[str]) -> str:
    """Return the path of the file that config.json tells transformers to load in place of the
    standard ones, or an empty string.
    """
    try:
        name = (
            folder.json("config.json").get("transformers_weights")
            if "config.json" in entries
            else None
        )
    except ConfigError:
        return ""  # whoever reads the configuration reports it
    except RemoteError as error:
        if error.code != "json":
            raise
        return ""
    if name is None:
        return ""
    expected = (
        f"{safe(folder.name) or 'this folder'}: expected the file that "
        "transformers_weights in config.json names"
    )
    if not isinstance(name, str) or not (
        name.endswith((".safetensors", INDEX_EXTENSIONS[0])) or name == "adapter_model.bin"
    ):
        raise FormatError(
            "transformers_weights",
            f"{expected}, a .safetensors file or index, found {safe(repr(name), 80)}",
        )
    subfolder, _, file = name.rpartition("/")
    try:
        is_there = file in (folder.inner(subfolder).names() if subfolder else entries)
    except (FormatError, RemoteError) as error:
        if isinstance(error, RemoteError) and error.code != "missing":
            raise
        raise FormatError(
            "transformers_weights", f"{expected}, found {safe(repr(name), 80)}: {error}"
        ) from None
    if not is_there:
        local = isinstance(folder, LocalFolder)
        hint = f"download it: `{download_command(folder.name or '.', [name])}`" if local else ""
        raise FormatError(
            "transformers_weights", f"{expected}, found no file {safe(name, 80)}", hint=hint
        )
    return name


def _base_and_adapter(folder: Folder, base: str) -> FormatError:
    return FormatError(
        "adapter",
        f"{safe(folder.name)}: expected a checkpoint or an adapter, found both {safe(base)} and "
        f"{ADAPTER_CONFIG}, "
        "for which transformers loads another base model",
        hint=f"name the file to read: {safe(folder.path(base))}",
    )


def _no_checkpoint(folder: Folder, entries: Sequence[str]) -> FormatError:
    """Return the error of a folder without a checkpoint, which may have the remains of a
    download.
    """
    local = isinstance(folder, LocalFolder)
    remains = [x for x in entries if is_unfinished(x)] or (
        unfinished_in(folder.name) if local else []
    )
    if not remains:
        return FormatError(
            "no_checkpoint",
            f"{safe(folder.name)} contains no checkpoint",
            hint=f"expected {', '.join(EXTENSIONS)}",
        )
    message = (
        f"{safe(folder.name)} contains no checkpoint, but {len(remains)} unfinished "
        f"download{'s' * (len(remains) > 1)}"
    )
    command = f"finish the download: `{download_command(folder.name or '.')}`" if local else ""
    return FormatError("unfinished_download", f"{message}: {list_names(remains)}", hint=command)


def gguf_parts(path: str) -> list[str]:
    """Return all parts of a split GGUF file (`NAME-00001-of-00003.gguf`), or just the path of
    any other file.
    """
    if not path.endswith(".gguf"):
        return [path]
    from .gguf import siblings

    return list(siblings(path))


def list_names(names: Iterable[str], limit: int = 4) -> str:
    """Return the first names, escaped, and the number of the others."""
    all_names = list(names)
    shown = ", ".join(safe(x, 80) for x in all_names[:limit])
    return f"{shown} and {len(all_names) - limit:,} more" if len(all_names) > limit else shown
