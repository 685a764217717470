"""A repository on the Hub is named in every command as people write it; the local Hugging Face cache is read before the Hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath import embedded
from llamath.checkpoint.hub_cache import cache_folder, find_cached
from llamath.checkpoint.open import find_repo, local_copy, open_checkpoint
from llamath.checkpoint.repo_id import Repo, endpoint, is_offline, parse_repo
from llamath.cli import cli
from llamath.utils.errors import LlamathError, RemoteError
from support.hub_server import (
    COMMIT,
    CONFIG,
    SHARDS,
    TOKEN,
    Hub,
    Site,
    authorized,
    indexed,
    redirect,
    sites,
    status,
)

pytestmark = pytest.mark.usefixtures("alone")
Pair = tuple[Site, Site]
FILES = {
    name: (Path(embedded.path()) / name).read_bytes()
    for name in os.listdir(embedded.path())
    if name.endswith((".json", ".safetensors"))
}
"""The bundled model, as a repository."""
TOTAL = 803_968


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, args)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def snapshot(
    files: dict[str, bytes], repo: str = "org/name", commit: str = COMMIT, ref: str = "main"
) -> Path:
    """Write files into the cache as huggingface_hub does: blobs, links to them in a snapshot, and a ref."""
    folder = Path(cache_folder()) / ("models--" + repo.replace("/", "--"))
    for name, data in files.items():
        blob = folder / "blobs" / f"{hash(data):x}".replace("-", "f")
        link = folder / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        blob.parent.mkdir(exist_ok=True)
        blob.write_bytes(data)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (folder / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
    (folder / "refs" / ref).write_text(commit)
    return folder / "snapshots" / commit


# names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/name", Repo("org/name")),
        ("org/name@v1.0", Repo("org/name", "v1.0")),
        ("org/name@refs/pr/3", Repo("org/name", "refs/pr/3")),
        ("org/name/q4_k_m.gguf", Repo("org/name", "main", "q4_k_m.gguf")),
        ("org/name@main/original/params.json", Repo("org/name", "main", "original/params.json")),
        ("hf://org/name", Repo("org/name")),
        ("hf://models/org/name@a%2Fb/sub", Repo("org/name", "a/b", "sub")),
        ("hf://gpt2", Repo("gpt2")),
        ("https://huggingface.co/org/name", Repo("org/name")),
        ("https://huggingface.co/org/name/", Repo("org/name")),
        ("https://huggingface.co/org/name/tree/main", Repo("org/name")),
        (
            "https://hf.co/org/name/tree/refs%2Fpr%2F1/original",
            Repo("org/name", "refs/pr/1", "original"),
        ),
        ("huggingface.co/org/name/blob/main/config.json", Repo("org/name", "main", "config.json")),
        (
            "https://huggingface.co/org/name/resolve/main/a.gguf?download=true",
            Repo("org/name", "main", "a.gguf"),
        ),
        *[
            (x, None)
            for x in (
                *(
                    "org",
                    "org/name.gguf",
                    "org/config.json",
                    "a/b/c",
                    "org/name/sub",
                    "datasets/org/name",
                    "spaces/org",
                    "org/na me",
                ),
                *(
                    "org/..",
                    "a..b/c",
                    "-a/b",
                    "org/name@",
                    "org//name",
                    "https://example.org/org/name",
                    "dim=4096/2",
                ),
            )
        ],
    ],
)
def test_names_of_repositories_are_parsed(text: str, expected: Repo | None) -> None:
    assert parse_repo(text) == expected
    if expected:
        assert parse_repo(expected.address) == expected


@pytest.mark.parametrize(
    "text",
    [
        "./org/name",
        "/org/name",
        "~/org/name",
        "../name",
        "org/name.safetensors",
        "a/b/c/d",
        "a/b/c/config.json",
        "nothing",
        "x/y.json",
    ],
)
def test_misspelled_paths_never_reach_the_network(pair: Pair, text: str) -> None:
    for command in ("count", "ls", "verify", "memory"):
        code, out, err = run(command, text)
        assert (code, out) == (2, "") and err.startswith("error: ") and not pair[0].seen


def test_path_in_an_existing_folder_is_not_looked_up(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "org").mkdir()
    monkeypatch.chdir(tmp_path)
    for command in ("count", "ls", "verify", "memory", "run"):
        code, _, err = run(command, "org/name", *(["x"] if command == "run" else []))
        assert (
            code == 2
            and "no such file in the folder org" in err
            and "hf://org/name reads it from the Hub" in err
        )
    assert not pair[0].seen


def test_folder_of_the_same_name_wins(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Hub(*pair, FILES)
    snapshot(FILES)
    (tmp_path / "org" / "name").mkdir(parents=True)
    (tmp_path / "org" / "name" / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    assert llamath.load("org/name").parameters.total == llamath.load(CONFIG).parameters.total
    assert find_repo("org/name") is None and not pair[0].seen


# commands


COMMANDS: dict[str, Callable[[str, Path], list[str]]] = {
    "count": lambda x, _: ["count", x],
    "config": lambda x, _: ["config", x],
    "ls": lambda x, _: ["ls", x],
    "verify": lambda x, _: ["verify", x],
    "verify against": lambda x, _: ["verify", embedded.path(), x],
    "verify --full": lambda x, _: ["verify", x, "--full"],
    "memory": lambda x, _: ["memory", x],
    "fit": lambda x, _: ["fit", x, "--on", "h100"],
    "flops": lambda x, _: ["flops", x],
    "names": lambda x, _: ["names", x],
    "diff": lambda x, _: ["diff", x, "embedded"],
    "explain": lambda x, _: ["explain", str(TOTAL), "--like", x],
    "plan": lambda x, _: ["plan", x, "--on", "h100"],
    "trace": lambda x, _: ["trace", x],
    "export": lambda x, folder: ["export", x, "-o", str(folder / "page.html")],
    "convert": lambda x, folder: ["convert", x, str(folder / "out.gguf"), "--names", "gguf"],
    "same --logits": lambda x, _: ["same", x, "embedded", "--logits", "ids:1,2,3"],
    "run": lambda x, _: ["run", x, "Anna had", "--max-tokens", "2", "--temperature", "0"],
    "trace PROMPT": lambda x, _: ["trace", x, "Anna had"],
    "run --chat": lambda x, _: ["run", x, "--chat"],
    "same": lambda x, _: ["same", x, "embedded"],
    "same, hash": lambda x, _: ["same", x],
    "edit": lambda x, folder: [
        "convert",
        x,
        str(folder / "edited"),
        "--layers",
        "0",
        "--dry-run",
    ],
    "design": lambda x, _: ["design", str(TOTAL), "--like", x],
}


SPELLINGS = ("org/name", "org/name@main", "org/name/model.safetensors", "{}/org/name/tree/main")


@pytest.mark.parametrize("text", SPELLINGS)
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_every_spelling(
    pair: Pair, tmp_path: Path, name: str, text: str, request: pytest.FixtureRequest
) -> None:
    """Each command takes one of them, in turn, and each of them with `--all`."""
    if (list(COMMANDS).index(name) - SPELLINGS.index(text)) % 4 and not request.config.getoption(
        "all"
    ):
        pytest.skip("with --all")
    if name in ("run", "run --chat", "same --logits", "trace PROMPT"):
        pytest.importorskip("torch")
    if name in (
        "run",
        "run --chat",
        "same --logits",
        "trace PROMPT",
        "convert",
        "verify --full",
        "same",
        "same, hash",
        "edit",
    ):
        pytest.importorskip("huggingface_hub")
    Hub(*pair, FILES)
    arguments = COMMANDS[name](text.format(pair[0].url), tmp_path)
    code, out, err = run(*arguments)
    assert code == 0 and pair[0].seen, err
    if name == "run":
        assert out == run(*COMMANDS[name](embedded.path(), tmp_path))[1]


def test_help_and_errors_name_repositories() -> None:
    assert "owner/name" in " ".join(run("help", "all")[1].split())
    assert "owner/name" in run("count")[2] and "owner/name" in run("count", "qqqq")[2]


def test_a_word_like_a_repository_is_not_a_prompt(pair: Pair) -> None:
    code, _, err = run("run", "org/name")
    assert code == 2 and "expected a PROMPT, org/name is a MODEL" in err and not pair[0].seen


def test_preset_without_weights_names_its_repository(pair: Pair) -> None:
    pytest.importorskip("torch")
    code, _, err = run("run", "llama-3-8b", "x")
    assert (
        code == 2
        and "meta-llama/Meta-Llama-3-8B downloads its weights" in " ".join(err.split())
        and not pair[0].seen
    )


def test_misspelled_id_gets_a_suggestion(pair: Pair) -> None:
    for command in ("count", "ls", "verify"):
        pair[0].seen.clear()
        code, _, err = run(command, "meta-lama/Llama-3.1-8B")
        assert (
            code == 2
            and "did you mean meta-llama/Llama-3.1-8B" in " ".join(err.split())
            and not pair[0].seen
        )


def test_gguf_repository_without_a_config_is_read(pair: Pair, tmp_path: Path) -> None:
    assert run("convert", "embedded", str(tmp_path / "tiny.gguf"), "--names", "gguf")[0] == 0
    data = (tmp_path / "tiny.gguf").read_bytes()
    Hub(*pair, {"tiny.gguf": data, "README.md": b"hi"})
    assert json.loads(run("count", "org/name", "--json")[1])["parameters"]["total"] == TOTAL
    Hub(*pair, {"tiny.gguf": data, "config.json": b'{"model_type": "llama"}'})
    assert json.loads(run("count", "org/name", "--json")[1])["parameters"]["total"] == TOTAL
    Hub(*pair, {"a.gguf": data, "b.gguf": data})
    code, _, err = run("count", "org/name")
    assert code == 2 and "a.gguf, b.gguf" in err
    assert json.loads(run("count", "org/name/b.gguf", "--json")[1])["parameters"]["total"] == TOTAL


# the cache


def test_cache_is_read_before_the_hub(pair: Pair, tmp_path: Path) -> None:
    Hub(*pair, {"config.json": b"{}"})
    folder = snapshot(FILES)
    model = llamath.load("org/name")
    assert (model.name, model.parameters.total, model.source) == (
        "name",
        TOTAL,
        f"{folder}/config.json",
    )
    assert model.location == f"hf://org/name@{COMMIT}"
    checkpoint = open_checkpoint("org/name")
    assert (
        checkpoint.commit_note == f"org/name is at commit {COMMIT}, in the Hugging Face cache"
        and not checkpoint.is_remote
    )
    for name in ("count", "ls", "verify", "memory", "fit", "convert", "trace"):
        assert run(*COMMANDS[name]("org/name", tmp_path))[0] == 0
        assert run(*COMMANDS[name](f"org/name@{COMMIT}", tmp_path / "x"))[0] == 0
    assert local_copy("org/name/model.safetensors") == str(folder / "model.safetensors")
    assert not pair[0].seen and not pair[1].seen


def test_files_in_the_cache_are_compared_with_their_config(pair: Pair) -> None:
    config = json.loads(FILES["config.json"]) | {"num_hidden_layers": 3}
    snapshot(FILES | {"config.json": json.dumps(config).encode()})
    for command in ("count", "memory"):
        assert "the files" in " ".join(run(command, "org/name")[1].split())
    assert not pair[0].seen


@pytest.mark.parametrize("place", ["cache", "hub"])
def test_a_named_shard_is_counted_by_its_header(place: str, pair: Pair) -> None:
    files = {"config.json": json.dumps(CONFIG).encode(), **indexed(SHARDS)}
    Hub(*pair, files)
    if place == "cache":
        snapshot(files)
    name = next(iter(SHARDS))
    code, out, _ = run("count", f"org/name/{name}", "--json")
    assert code == 0 and json.loads(out)["parameters"]["total"] == 3 * 64 * 32, out
    assert bool(pair[1].seen) == (place == "hub")


def test_cached_revisions_are_told_apart(pair: Pair) -> None:
    other = "f" * 40
    snapshot({"config.json": json.dumps(CONFIG).encode()}, commit=other, ref="refs/pr/1")
    snapshot(FILES)
    assert llamath.load("org/name").parameters.total == TOTAL
    for text in (f"org/name@{other}", "org/name@refs/pr/1"):
        assert llamath.load(text).parameters.total == llamath.load(CONFIG).parameters.total
    assert not pair[0].seen
    with pytest.raises(RemoteError):
        llamath.load("org/name@v2")
    assert pair[0].seen


def test_cache_with_only_a_config_leaves_weights_to_the_hub(pair: Pair) -> None:
    Hub(*pair, FILES)
    snapshot({"config.json": FILES["config.json"]})
    assert run("count", "org/name")[0] == 0 and not pair[0].seen
    ours, theirs = (
        json.loads(run("memory", x, "--json")[1]) for x in ("org/name", embedded.path())
    )
    assert (
        ours["weights"] == theirs["weights"] and ours["lines"] == theirs["lines"] and pair[0].seen
    )


def test_cache_without_one_shard_leaves_weights_to_the_hub(pair: Pair) -> None:
    files = indexed(SHARDS)
    Hub(*pair, files)
    snapshot({name: data for name, data in files.items() if not name.startswith("model-00003")})
    assert len(open_checkpoint("org/name").manifest.files) == len(SHARDS) and pair[1].seen


def test_damaged_files_in_the_cache_are_reported(pair: Pair) -> None:
    Hub(*pair, FILES)
    snapshot(FILES | {"model.safetensors": FILES["model.safetensors"][:-9]})
    code, out, _ = run("verify", "org/name", "--json")
    assert (
        code == 1
        and [x["code"] for x in json.loads(out)["findings"]] == ["truncated"]
        and not pair[0].seen
    )


@pytest.mark.parametrize("ref", ["../../x", "not a commit", "", "0" * 39, "/etc"])
def test_damaged_refs_of_the_cache_are_ignored(pair: Pair, ref: str) -> None:
    snapshot(FILES)
    (Path(cache_folder()) / "models--org--name" / "refs" / "main").write_text(ref)
    assert find_cached(Repo("org/name")) is None and find_cached(Repo("org/name", "..")) is None
    assert find_cached(Repo("org/name", COMMIT, "../../refs/main")) is None


def test_links_out_of_the_cache_are_refused(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(json.dumps(CONFIG))
    folder = snapshot({"model.safetensors": FILES["model.safetensors"]})
    (folder / "config.json").symlink_to(tmp_path / "secret")
    code, _, err = run("count", "org/name")
    assert code == 2 and "is a symbolic link out of" in err


# offline


def test_offline_reads_the_cache_and_nothing_else(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    Hub(*pair, FILES)
    for command in ("count", "ls", "verify", "memory", "convert"):
        code, _, err = run(*COMMANDS[command]("org/name", Path("/nowhere")))
        assert (
            code == 2
            and "is not in the Hugging Face cache" in " ".join(err.split())
            and "HF_HUB_OFFLINE" in err
        )
    snapshot({"config.json": FILES["config.json"]})
    assert run("count", "org/name")[0] == 0
    assert "is incomplete in the Hugging Face cache" in " ".join(run("ls", "org/name")[2].split())
    code, _, err = run("memory", "org/name")
    assert code == 2 and "--dtype" in err
    assert run("memory", "org/name", "--dtype", "bf16")[0] == 0
    assert not pair[0].seen


def test_unreachable_hub_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with sites(1) as (site,):
        url = site.url
    monkeypatch.setenv("HF_ENDPOINT", url)
    attempts = []
    import socket

    connect = socket.socket.connect
    monkeypatch.setattr(
        socket.socket,
        "connect",
        lambda self, address: (attempts.append(address), connect(self, address))[1],
    )
    for command in ("count", "ls", "verify", "memory", "convert"):
        attempts.clear()
        code, out, err = run(*COMMANDS[command]("org/name", Path("/nowhere")))
        assert (code, out, err.count("error: ")) == (
            2,
            "",
            1,
        ) and "cannot be reached: Connection refused" in " ".join(err.split())
        assert len(attempts) == 1
    snapshot(FILES)
    assert run("verify", "org/name")[0] == 0


ENVIRONMENTS: list[dict[str, str]] = [
    {},
    {"HF_HOME": "/a/b"},
    {"HF_HOME": "~/x", "XDG_CACHE_HOME": "/ignored"},
    {"XDG_CACHE_HOME": "/cache"},
    {"HF_HUB_CACHE": "/elsewhere", "HF_HOME": "/a"},
    {"HUGGINGFACE_HUB_CACHE": "/older", "HF_HOME": "/a"},
    {"HF_HUB_CACHE": "$HOME/y", "HUGGINGFACE_HUB_CACHE": "/older"},
    {"HF_HUB_OFFLINE": "yes", "HF_ENDPOINT": "https://mirror.example/"},
    {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "1"},
    {"TRANSFORMERS_OFFLINE": "on", "HF_TOKEN_PATH": "$HOME/token"},
    {"HF_HUB_OFFLINE": "2", "HF_TOKEN": " hf_one\n", "HUGGING_FACE_HUB_TOKEN": "hf_two"},
    {"HUGGING_FACE_HUB_TOKEN": "hf_two"},
    {"HF_TOKEN": "hf_one", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "True"},
]


@pytest.mark.parametrize("number", range(len(ENVIRONMENTS)))
def test_settings_equal_those_of_huggingface_hub(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    from llamath.checkpoint.hub.hub_repo import find_token

    code = (
        "import json; from huggingface_hub import constants as c; from huggingface_hub.utils import build_hf_headers as h\n"
        "print(json.dumps([c.HF_HUB_CACHE, c.HF_HUB_OFFLINE, c.ENDPOINT, h().get('authorization', '').removeprefix('Bearer ')]))"
    )
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in (tmp_path / ".cache" / "huggingface", tmp_path):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").write_text(f"hf_in_{folder.name.strip('.')}\n")
    for name, value in ENVIRONMENTS[number].items():
        monkeypatch.setenv(name, value)
    theirs = json.loads(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # what is read without it
    assert [cache_folder(), is_offline(), endpoint(), find_token()] == theirs


# downloads


@pytest.fixture
def downloads(pair: Pair) -> Hub:
    pytest.importorskip("huggingface_hub")
    extra = {
        "README.md": b"hi",
        "modeling_evil.py": b"import os",
        "pytorch_model.bin": b"x",
        "original/params.json": b"{}",
    }
    return Hub(*pair, FILES | extra)


def test_download_fetches_only_needed_files(
    downloads: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []
    folder = Path(local_copy("org/name", lines.append))
    assert folder == Path(cache_folder()) / "models--org--name" / "snapshots" / COMMIT
    assert sorted(os.listdir(folder)) == sorted(FILES)
    assert all((folder / name).read_bytes() == data for name, data in FILES.items())
    assert lines == [
        f"downloading hf://org/name@{COMMIT} to {cache_folder()}: {len(FILES)} files, 1.61 MB of weights"
    ]
    assert "Fetching 5 files: 100%" in capfd.readouterr().err, "huggingface_hub's progress bar"
    asked = len(downloads.endpoint.seen)
    assert (
        local_copy("org/name", lines.append) == str(folder)
        and len(downloads.endpoint.seen) == asked
    )
    assert lines[-1].endswith("in the Hugging Face cache")
    from huggingface_hub import try_to_load_from_cache

    assert try_to_load_from_cache("org/name", "model.safetensors", cache_dir=cache_folder()) == str(
        folder / "model.safetensors"
    )


def test_download_sends_the_token_to_the_endpoint_only(
    downloads: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    local_copy("org/name")
    files = [x for x in downloads.endpoint.seen if "/resolve/" in x.path]
    assert files and all("authorization" in x.headers for x in files)
    assert downloads.store.seen and not any(authorized(downloads.store))


def test_download_sends_no_token_when_it_is_disabled(
    downloads: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    local_copy("org/name")
    assert not any(authorized(downloads.endpoint))


def test_incomplete_repository_is_refused_before_the_download(pair: Pair) -> None:
    pytest.importorskip("huggingface_hub")
    files = indexed(SHARDS)
    Hub(*pair, {name: data for name, data in files.items() if not name.startswith("model-00003")})
    with pytest.raises(LlamathError, match="lacks 1 files of its index: model-00003-of-00012"):
        local_copy("org/name")
    assert not os.path.exists(cache_folder())


def test_download_larger_than_the_disk_is_refused(
    downloads: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**7, 10**7 - 10**6, 10**6)
    )
    with pytest.raises(
        RemoteError, match=r"1\.00 MB free, and the weights to download have 1\.61 MB"
    ) as error:
        local_copy("org/name")
    assert error.value.code == "disk" and not os.path.exists(cache_folder())


def test_failed_download_is_one_error_without_secrets(
    downloads: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    downloads.endpoint.pages[downloads.resolve("tokenizer.json")] = status(
        403, {"X-Error-Message": TOKEN}, TOKEN.encode()
    )
    with pytest.raises(RemoteError) as error:
        local_copy("org/name")
    assert error.value.code == "download" and TOKEN not in f"{error.value}{error.value.hint}"
    snapshot_folder = Path(cache_folder()) / "models--org--name" / "snapshots" / COMMIT
    assert not (snapshot_folder / "tokenizer.json").exists()


def test_repository_that_changes_during_the_download_is_refused(
    downloads: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda *_, **__: str(Path(cache_folder()) / "snapshots" / ("f" * 40)),
    )
    with pytest.raises(RemoteError, match="changed from commit") as error:
        local_copy("org/name")
    assert error.value.code == "changed"


def test_file_of_another_size_than_announced_is_refused(
    downloads: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    def download(*_: Any, **__: Any) -> str:
        return str(snapshot(FILES | {"model.safetensors": FILES["model.safetensors"][:-1]}))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(RemoteError, match=r"model.safetensors: expected 1,611,976 bytes"):
        local_copy("org/name")


def test_download_follows_no_endless_redirects(downloads: Hub) -> None:
    path = downloads.resolve("tokenizer.json")
    downloads.endpoint.pages[path] = redirect(path)
    with pytest.raises(RemoteError) as error:
        local_copy("org/name")
    assert (
        error.value.code == "download"
        and len([x for x in downloads.endpoint.seen if x.path == path]) < 100
    )


def test_missing_extra_is_named(downloads: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(llamath.MissingExtra) as error:
        local_copy("org/name")
    assert error.value.hint == "pip install 'llamath[hub]'"
    assert run("verify", "org/name")[0] == 0, "headers need no extra"


def test_weights_in_the_cache_run_without_the_hub(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_tokenizer = {
        name: data for name, data in FILES.items() if not name.startswith("tokenizer")
    }
    folder = snapshot(without_tokenizer)
    pair[0].pages.clear()
    with pytest.raises(RemoteError):
        local_copy("org/name")  # the Hub may have a tokenizer, and says that there is no such model
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    lines: list[str] = []
    assert local_copy("org/name", lines.append) == str(folder) and "cannot be asked" in lines[0]


def test_values_and_sums_of_a_download_are_checked(pair: Pair) -> None:
    pytest.importorskip("huggingface_hub")
    Hub(*pair, FILES)
    report = json.loads(run("verify", "org/name", "--full", "--json")[1])
    assert report["ok"] and str(report).count("the Hub's cache") >= len(FILES) - 1
    blob = (
        Path(cache_folder()) / "models--org--name" / "snapshots" / COMMIT / "model.safetensors"
    ).resolve()
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(data)
    code, out, _ = run("verify", "org/name", "--full", "--json")
    assert code == 1 and "sum" in str([x["code"] for x in json.loads(out)["findings"]])


def test_full_verification_in_python_downloads_like_the_command(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    pytest.importorskip("numpy")
    Hub(*pair, FILES)
    report = llamath.verify("org/name", full=True)
    assert (
        report.ok
        and report.full is not None
        and report.full.tensors > 0
        and report.full.compared >= len(FILES) - 1
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert llamath.verify("org/name", full=True).ok
    with pytest.raises(RemoteError):
        llamath.verify("org/other", full=True)


def test_sums_are_not_written_for_a_repository(pair: Pair) -> None:
    code, _, err = run("verify", "org/name", "-o", "SHA256SUMS")
    assert code == 2 and "the sums are those of local files" in err and not pair[0].seen
