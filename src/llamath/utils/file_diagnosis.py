"""`diagnose`: what a file is that should be a checkpoint or a configuration, by its name and first
bytes, and the command that fixes it.

Git LFS, huggingface_hub, aria2, curl, wget and browsers leave such files behind. A command is
suggested only if it replaces nothing but the broken file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from .access import may_read, open_file
from .errors import safe
from .named_tuple import NamedTuple

HEAD_BYTES = 1024
"""The number of first bytes that a diagnosis needs."""


class Diagnosis(NamedTuple):
    """What a file is instead of what was expected."""

    code: str  # of the error
    message: str
    hint: str


class _Kind(NamedTuple):
    """A kind of file that stands in the place of another."""

    code: str
    what: str  # with its article
    pattern: str  # of the first bytes, which are decoded as Latin-1; case does not matter
    fix: str  # key of `_fix`, or a hint


_BLANK = r"\A(?:\xef\xbb\xbf)?[ \t\r\n]{0,64}"
_KINDS = (
    _Kind(
        "lfs_pointer",
        "a Git LFS pointer",
        r"\Aversion https?://(?:git-lfs\.github"
        r"|hawser\.github|git-media\.io)",
        "lfs",
    ),
    _Kind("xet_pointer", "a Xet pointer", r"\A# xet version \d", "download"),
    _Kind(
        "annex_pointer", "a git-annex pointer", r"\A(?:/|(?:\.\./)*\.git/)annex/objects/", "annex"
    ),
    _Kind(
        "html_page",
        "an HTML page",
        _BLANK + r"(?:<!--[^>]{0,200}-->[ "
        r"\t\r\n]{0,64})?<(?:!doctype html|html|head|body)\b",
        "login",
    ),
    _Kind(
        "html_page",
        "an HTML page",
        _BLANK + r"<\?xml[^>]{0,200}>[ \t\r\n]{0,64}<(?:!doctype "
        r"html|html)\b",
        "login",
    ),
    _Kind("xml_document", "an XML document", _BLANK + r"<(?:\?xml\b|error>)", "login"),
    _Kind(
        "error_message",
        "the error message of a server",
        _BLANK + r'\{"(?:error|detail|message'
        r'|errors|statuscode)":',
        "login",
    ),
    _Kind(
        "error_message",
        "the error message of a server",
        _BLANK
        + r"(40[0-9](?=:? \w)|50[0-9](?=:? \w)|not found|entry not found|repository not found"
        r"|revision not found|invalid (?:username|cred)|"
        r"access to (?:model|dataset|this)|access denied|forbidden|unauthorized|too many requests"
        r"|rate limit|internal server error|"
        r"bad gateway|service unavailable|gateway time-?out|request has expired)",
        "login",
    ),
    _Kind(
        "utf_16",
        "UTF-16 text",
        r"\A(?:\xff\xfe)?(?:[\t\r\n\x20-\x7e]\x00){4}",
        "JSON is UTF-8: save it as that",
    ),
    _Kind(
        "utf_16",
        "UTF-16 text",
        r"\A(?:\xfe\xff)?(?:\x00[\t\r\n\x20-\x7e]){4}",
        "JSON is UTF-8: save it as that",
    ),
    _Kind(
        "unknown_format", "a gzip archive", r"\A\x1f\x8b\x08", "unpack it first: `gzip -dk {file}`"
    ),
    _Kind(
        "unknown_format",
        "a Zstandard archive",
        r"\A\x28\xb5\x2f\xfd",
        "unpack it first: `zstd -dk {file}`",
    ),
    _Kind("unknown_format", "an xz archive", r"\A\xfd7zXZ\x00", "unpack it first: `xz -dk {file}`"),
    _Kind(
        "unknown_format",
        "a bzip2 archive",
        r"\ABZh[1-9]1AY&SY",
        "unpack it first: `bzip2 -dk {file}`",
    ),
    _Kind("unknown_format", "a 7-Zip archive", r"\A7z\xbc\xaf\x27\x1c", "unpack it first"),
    _Kind("unknown_format", "a RAR archive", r"\ARar!\x1a\x07", "unpack it first"),
    _Kind(
        "unknown_format",
        "a GGML file from before August 2023",
        r"\A(?:lmgg|fmgg|tjgg|algg)",
        "convert the model again with a current llama.cpp",
    ),
    _Kind(
        "unknown_format",
        "an HDF5 file, as Keras and TensorFlow write",
        r"\A\x89HDF\r\n\x1a\n",
        "other",
    ),
    _Kind("unknown_format", "a NumPy array", r"\A\x93NUMPY", "other"),
    _Kind("unknown_format", "a TensorFlow Lite model", r"\A.{4}TFL3", "other"),
    _Kind("unknown_format", "an executable", r"\A(?:\x7fELF|MZ\x90\x00|\xcf\xfa\xed\xfe)", "other"),
    _Kind("unknown_format", "a picture", r"\A(?:\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a)", "other"),
    _Kind("unknown_format", "a PDF document", r"\A%PDF-", "other"),
    _Kind("text_file", "a JSON file", _BLANK + r"[{\[][\t\r\n\x20-\x7e]*\Z", "other"),
    _Kind("text_file", "a text file", r"\A[\t\r\n\x20-\x7e]+\Z", "other"),
)
"""What stands in the place of files, by first bytes; the first that matches counts."""

_OTHER = "expected safetensors, GGUF, PyTorch's .pth and .bin, or .npz"


_OBJECTS = (
    ("a tokenizer", ("added_tokens", "model")),
    ("the configuration of a tokenizer", ("tokenizer_class",)),
    ("the configuration of an adapter, which changes weights of another model", ("peft_type",)),
    ("an index of weight files", ("weight_map",)),
    ("the configuration of an image processor", ("image_processor_type",)),
    ("the configuration of a feature extractor", ("feature_extractor_type",)),
    ("the configuration of a processor", ("processor_class",)),
    ("a configuration of diffusers", ("_class_name",)),
    ("the state of a training run", ("log_history",)),
    ("a configuration of DeepSpeed", ("zero_optimization",)),
    ("the settings of text generation", ("_from_model_config",)),
    ("the settings of text generation", ("do_sample",)),
    ("the settings of text generation", ("eos_token_id", "transformers_version")),
    ("a description of software packages", ("dependencies",)),
)
"""What an object in JSON without a model type is, by keys that it has; the first that matches
counts."""


def diagnose_keys(keys: Iterable[str]) -> str:
    """Return what an object in JSON is that is no configuration of a model; empty if nothing
    tells it.
    """
    own = frozenset(keys)
    return next((what for what, needed in _OBJECTS if own.issuperset(needed)), "")


def page_objects() -> list[list[object]]:
    """Return (what an object is, keys that it has) for JSON files that the page opens itself."""
    return [[what, list(needed)] for what, needed in _OBJECTS]


def page_patterns() -> list[tuple[str, str]]:
    """Return (what a file is, pattern of its first bytes as in JavaScript), for the files that
    the page opens itself.
    """
    found = [
        (x.what, x.pattern.replace(r"\A", "^").replace(r"\Z", "$").replace("(?s:", "(?:"))
        for x in _KINDS
    ]
    return [
        ("an empty file", "^$"),
        ("a file of zero bytes, whose download did not finish", r"^\x00{9,}$"),
        *found,
    ]


UNFINISHED = {
    ".incomplete": "an unfinished download of huggingface_hub",
    ".aria2": "the control file of an unfinished aria2 download",
    ".crdownload": "an unfinished download of Chrome",
    ".opdownload": "an unfinished download of Opera",
    ".downloadInProgress": "an unfinished download of llama.cpp",
    ".part": "an unfinished download",
    ".partial": "an unfinished download",
    "-partial": "an unfinished download of Ollama",
    ".download": "an unfinished download of Safari",
    ".!qB": "an unfinished download of qBittorrent",
}
"""Endings of the files in which downloads are kept until they are finished."""
LOCK = ".lock"
"""The ending of lock files, which have no content; huggingface_hub leaves them behind after
downloads."""
_HUB_CACHE = (
    r"(?s:(?P<root>.*)[/\\](?:models|datasets|spaces)--(?P<owner>[\w.-]+?)--(?P<name>[\w.-]+)[/\\]"
    r"(?:snapshots[/\\](?P<revision>[^/\\]+)|blobs|refs))"
)
_REMOTE = (
    r"(?a:url\s{0,9}=\s{0,9}(?:https?://"
    r"|git@)(?:[^/@\s]{1,200}@)?(?P<host>[^/:@\s]{1,200}(?::\d{1,5})?)[/:]"
    r"(?P<id>[\w.-]{1,96}/[\w.-]{1,96}?)(?:\.git)?/?\s)"
)
_ANY_REPOSITORY = "OWNER/NAME"
_MAX_PARENTS, _MAX_GIT_CONFIG, _MAX_ARGUMENTS = 12, 1 << 16, 8


def diagnose(head: bytes, name: str, size: int, expected: str = "a checkpoint") -> Diagnosis | None:
    """Return what a file is by its first bytes, its name and its size; None if nothing speaks
    against what was expected.

    `name` is a path or an address; of a path the hint has the command that fetches the file.
    """
    if (unfinished := diagnose_name(name)) is not None:
        return unfinished
    if not size:
        return Diagnosis(
            "empty_file", f"{safe(name)} is empty, not {expected}", _fix("download", name)
        )
    if not head.strip(b"\0"):
        return Diagnosis(
            "zeros",
            f"{safe(name)} begins with {len(head):,} zero bytes, unlike {expected}",
            _fix("space", name),
        )
    text = head.decode("latin-1")
    for kind in _KINDS:
        if found := re.search(kind.pattern, text, re.IGNORECASE | re.DOTALL):
            if kind.code == "text_file" and expected != "a checkpoint":
                break
            what = f"{kind.what}{_details(kind.code, found, text)}"
            return Diagnosis(
                kind.code,
                f"{safe(name)} is {what}, not {_expected(kind, expected)}",
                _fix(kind.fix, name),
            )
    return None


def diagnose_name(name: str) -> Diagnosis | None:
    """Return what a file is if its name alone tells it: the remains of a download."""
    for ending, what in UNFINISHED.items():
        if name.endswith(ending):
            return Diagnosis(
                "unfinished_download",
                f"{safe(name)} is {what}",
                _fix("aria2" if ending == ".aria2" else "finish", name),
            )
    if name.endswith(LOCK):
        message = f"{safe(name)} is a lock file of a download, which has no content"
        return Diagnosis(
            "lock_file",
            message,
            f"name the downloaded file; if there is none, {_fix('finish', name)}",
        )
    return None


def unfinished_beside(name: str, control: str) -> Diagnosis:
    """Return the diagnosis of a file next to which a download program keeps the state of its
    download.
    """
    message = (
        f"{safe(name)} is not finished: {safe(os.path.basename(control))} next to it is "
        f"{UNFINISHED['.aria2']}"
    )
    return Diagnosis("unfinished_download", message, _fix("aria2", name))


def is_unfinished(name: str) -> bool:
    """Whether a file name is that of an unfinished download."""
    return name.endswith(tuple(UNFINISHED))


def unfinished_in(folder: str) -> list[str]:
    """Return the unfinished downloads that huggingface_hub keeps in a folder, or next to a
    revision in its cache.
    """
    inside = os.path.join(".cache", "huggingface", "download")
    if (found := re.match(_HUB_CACHE, os.path.abspath(folder or "."))) and found["revision"]:
        inside = os.path.relpath(
            os.path.join(found[0], "..", "..", "blobs"), os.path.abspath(folder or ".")
        )
    if not may_read(os.path.join(folder, inside)):
        return []
    try:
        return sorted(
            os.path.join(inside, x)
            for x in os.listdir(os.path.join(folder, inside))
            if is_unfinished(x)
        )
    except OSError:
        return []


def truncated_hint(name: str) -> str:
    """Return the hint for a file that is shorter than its header says."""
    if not os.path.lexists(name):
        return "the file is incomplete: compare its size with the publisher's"
    return f"the download or copy is incomplete; to download it again: `{download_command(name)}`"


def missing_hint(folder: str, names: Iterable[str]) -> str:
    """Return the hint for files that a folder should have."""
    files = list(names)
    if not os.path.isdir(folder or "."):
        return "the repository is incomplete: ask its owner, or use another revision"
    unfinished = [
        f"{x}{ending}"
        for x in files[:_MAX_ARGUMENTS]
        for ending in UNFINISHED
        if os.path.lexists(os.path.join(folder, x + ending))
    ]
    unfinished = unfinished or unfinished_in(folder)
    begun = f"a download is unfinished ({safe(unfinished[0])}); " if unfinished else ""
    return (
        f"{begun}download {'it' if len(files) == 1 else 'them'}: "
        f"`{download_command(folder, files)}`"
    )


def download_command(path: str, names: Iterable[str] = ()) -> str:
    """Return the command that downloads a file again, or these files of a folder; no other file
    is replaced.
    """
    files = list(names)
    is_folder = bool(files) or os.path.isdir(path)
    folder, own = (path, "") if is_folder else os.path.split(path)
    folder = os.path.abspath(folder)
    if found := re.match(_HUB_CACHE, folder):
        listed = files or ([own] if own and found["revision"] else [])
        return _hub_cache_command(found, listed, folder)
    root, repository = _find_repository(folder)
    if files or (own and not is_unfinished(own) and not own.endswith(LOCK)):
        inside = os.path.relpath(folder, root).replace(os.sep, "/")
        listed = [x if inside == "." else f"{inside}/{x}" for x in files or [own]]
    else:
        listed = []
    return " ".join(
        ("hf", "download", repository, *_arguments(listed), "--local-dir", quote_path(_shown(root)))
    )


def _hub_cache_command(found: re.Match[str], names: list[str], folder: str) -> str:
    """Return the command for files of the Hub's cache, where a file that exists is replaced only
    by force.
    """
    inside = folder[found.end() :].strip("/\\").replace(os.sep, "/")
    listed = [f"{inside}/{x}" if inside else x for x in names]
    words = ["hf", "download", f"{found['owner']}/{found['name']}", *_arguments(listed)]
    if found["revision"] and re.fullmatch("[0-9a-f]{40}", found["revision"]):
        words += ["--revision", found["revision"]]
    if listed and any(os.path.lexists(os.path.join(folder, x)) for x in names):
        words.append("--force-download")
    if os.path.abspath(found["root"]) != os.path.abspath(_default_cache()):
        words += ["--cache-dir", quote_path(_shown(found["root"]))]
    return " ".join(words)


def _default_cache() -> str:
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface"
    )
    return os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")


def _arguments(names: list[str]) -> list[str]:
    """Return file names as arguments; of many files, all weights."""
    if len(names) > _MAX_ARGUMENTS:
        return ["--include", "'*.safetensors'"]
    return [
        quote_path(x) if re.fullmatch(r"[^-\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,254}", x) else "FILE"
        for x in names
    ]


def _find_repository(folder: str) -> tuple[str, str]:
    """Return the root of the download or clone of a Hub repository that a folder is in, and the
    repository's id if that is known.
    """
    download = os.path.join(".cache", "huggingface", "download")
    inside, found, _ = folder.partition(os.sep + download)
    if found:
        return inside or os.sep, _ANY_REPOSITORY
    for at in _parents(folder):
        if os.path.isdir(os.path.join(at, download)):
            return at, _ANY_REPOSITORY
        if os.path.lexists(os.path.join(at, ".git")):
            repository = _git_repository(at)
            return (at, repository) if repository else (folder, _ANY_REPOSITORY)
    return folder, _ANY_REPOSITORY


def _parents(folder: str) -> Iterator[str]:
    """Yield a folder and the nearest folders that it is in and that may be read."""
    for _ in range(_MAX_PARENTS):
        if not may_read(folder):
            return
        yield folder
        if (parent := os.path.dirname(folder)) == folder:
            return
        folder = parent


def _is_in_clone(folder: str) -> bool:
    return any(
        os.path.lexists(os.path.join(at, ".git")) for at in _parents(os.path.abspath(folder))
    )


def _git_repository(root: str) -> str:
    """Return `OWNER/NAME` of the clone of a Hub repository, or an empty string."""
    path = os.path.join(root, ".git", "config")
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _MAX_GIT_CONFIG:
            return ""
        with open(
            open_file(path, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8", errors="replace"
        ) as file:
            found = re.search(_REMOTE, file.read(_MAX_GIT_CONFIG))
    except OSError:
        return ""
    return found["id"] if found and found["host"] in _hub_hosts() else ""


def _hub_hosts() -> tuple[str, ...]:
    return (
        "huggingface.co",
        "hf.co",
        os.environ.get("HF_ENDPOINT", "").partition("://")[2].partition("/")[0],
    )


def _fix(key: str, name: str) -> str:
    """Return the hint of a fix for this file."""
    if not os.path.lexists(name):
        return _REMOTE_FIXES.get(key, key).format(file="FILE")
    folder, file = os.path.split(os.path.abspath(name))
    download = download_command(name) if key in _LOCAL_FIXES else ""
    if key == "lfs" and _is_in_clone(folder):
        return (
            f"fetch the file itself: `{_lfs_pull(folder)}` (once on each machine before it: "
            "`git lfs install`)"
        )
    if key == "annex" and _is_in_clone(folder):
        return (
            f"fetch the file itself: `git -C {quote_path(_shown(folder))} annex get "
            f"{quote_path(safe(file))}`"
        )
    return _LOCAL_FIXES.get(key, key).format(command=download, file=quote_path(_shown(name)))


_LOCAL_FIXES = {
    "lfs": "download the file itself: `{command}`",
    "annex": "download the file itself: `{command}`",
    "download": "download the file itself: `{command}`",
    "login": "the download saved an error or login page; with a token that may read the "
    "repository (`hf auth login`): `{command}`",
    "space": "the download reserved the space and did not finish, or the disk was full: "
    "`{command}`",
    "finish": "repeat the command that began the download, such as `{command}`",
    "aria2": "repeat the aria2c command with --continue=true, or `{command}`",
    "other": _OTHER,
}
_REMOTE_FIXES = {
    "lfs": "the server has the pointer in place of the file: on the Hub, the address of a file "
    "contains /resolve/, not /raw/ or /blob/",
    "annex": "the server has the pointer in place of the file",
    "download": "nothing is in it where it comes from, or its download failed",
    "login": "is this a web page or an error? On the Hub, the address of a file contains "
    "/resolve/, not /blob/",
    "space": "it has no content where it comes from, or its download did not finish",
    "finish": "name the finished file",
    "aria2": "name the finished file",
    "other": _OTHER,
}


def _lfs_pull(folder: str) -> str:
    return f"git -C {quote_path(_shown(folder))} lfs pull"


def _expected(kind: _Kind, expected: str) -> str:
    return "the file itself" if kind.code.endswith("_pointer") else expected


def _details(code: str, found: re.Match[str], text: str) -> str:
    """Return what a file says, in parentheses, if these are words that are expected there:
    nothing else of a file is quoted.
    """
    if code == "lfs_pointer":
        size = re.search(r"^size (\d{1,19})$", text, re.MULTILINE)
        return f" to {int(size[1]):,} bytes" if size else ""
    if code == "xml_document":
        answer = re.search(rf"<code>\s{{0,9}}({_XML_CODES})\s{{0,9}}</code>", text, re.IGNORECASE)
        return f" (the server's answer: {answer[1]})" if answer else ""
    if code == "error_message" and found.re.groups:
        return f" ({found[1].lower()})"
    return ""


_XML_CODES = (
    "AccessDenied|AllAccessDisabled|AuthenticationFailed|AuthorizationFailure|BlobNotFound|ExpiredToken|InternalError|InvalidAccessKeyId|"
    "NoSuchBucket|NoSuchKey|PublicAccessNotPermitted|RequestTimeTooSkewed|ResourceNotFound|SignatureDoesNotMatch|SlowDown"
)
"""Codes of errors of S3, Google Cloud Storage and Azure."""


def _shown(path: str) -> str:
    """Return an absolute path relative to the current folder if it is inside of it."""
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):
        return path
    return path if relative.startswith("..") else relative


def quote_path(path: str) -> str:
    """Return a path as one word of a shell, never an option; characters that could harm a
    terminal are escaped.
    """
    text = safe(f"./{path}" if path.startswith("-") else path, 4096)
    return (
        text
        if re.fullmatch(r"[\w@%+=:,./-]+", text, re.ASCII)
        else "'" + text.replace("'", "'\"'\"'") + "'"
    )
