"""Remote checkpoints: a loopback server implements the Hub's protocol, and remote files equal the local ones."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import llamath
from llamath.checkpoint.formats import checkpoint_files as checkpoint
from llamath.checkpoint.hub import HttpFile, read_config, read_remote
from llamath.checkpoint.open import open_checkpoint
from llamath.cli import cli
from llamath.utils.errors import FormatError, RemoteError
from support import hub_server
from support.hostile_pth import VALID, VALID_OLD, legacy, zipped
from support.hub_server import (
    COMMIT,
    CONFIG,
    DATA,
    SHARDS,
    TOKEN,
    Handler,
    Hub,
    Site,
    file,
    header_length,
    indexed,
    on_disk,
    safetensors,
    same,
    status,
)

pytestmark = pytest.mark.usefixtures("alone")
Pair = tuple[Site, Site]


# successful reads


def test_remote_file_equals_the_local_file(pair: Pair, tmp_path: Path) -> None:
    files = {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors": safetensors({"a.weight": (4096, 3), "b": ()}),
    }
    Hub(*pair, files)
    for text in (
        "org/name",
        "hf://org/name",
        "hf://org/name@main",
        f"hf://org/name@{COMMIT}",
        f"{pair[0].url}/org/name/tree/main",
    ):
        checkpoint = open_checkpoint(text)
        same(checkpoint.manifest, on_disk(tmp_path, files))
        assert (
            checkpoint.is_remote
            and checkpoint.config.keys == CONFIG
            and checkpoint.revision == COMMIT
        )
        assert checkpoint.config.source == f"hf://org/name@{COMMIT}/config.json"


def test_only_headers_of_remote_shards_are_read(pair: Pair, tmp_path: Path) -> None:
    endpoint, store = pair
    files = indexed(SHARDS)
    Hub(endpoint, store, files)
    remote = read_remote("org/name").manifest
    same(remote, on_disk(tmp_path, files))
    assert remote.index is not None and remote.index.missing == ()
    assert store.sent == sum(24 + header_length(x) for x in SHARDS.values()), (
        "24 bytes to tell size and format, and the header"
    )
    assert len(store.seen) == 2 * len(SHARDS)
    assert len(endpoint.seen) == 1 + 2 + len(SHARDS), (
        "the API, the index and its redirect, one redirect for each shard"
    )
    assert all("range" in x.headers for x in store.seen)
    assert sum(map(len, SHARDS.values())) > 30 * store.sent


def test_missing_remote_shards_are_named(pair: Pair) -> None:
    files = indexed(SHARDS)
    gone = "model-00005-of-00012.safetensors"
    del files[gone]
    Hub(*pair, files)
    manifest = read_remote("org/name").manifest
    assert (
        len(manifest.files) == 11
        and manifest.index is not None
        and manifest.index.missing == (gone,)
    )


def test_remote_gguf_whole_and_split_are_read(pair: Pair, tmp_path: Path) -> None:
    def shard(number: int) -> bytes:
        keys = {
            "split.no": (2, "H", number),
            "split.count": (2, "H", 2),
            "split.tensors.count": (5, "i", 2),
        }
        return hub_server.gguf({f"blk.{number}.attn_q.weight": (32, 32)}, keys)

    whole = hub_server.gguf({"token_embd.weight": (64, 32)})
    files = {
        "Q8/x-00001-of-00002.gguf": shard(0),
        "Q8/x-00002-of-00002.gguf": shard(1),
        "x.gguf": whole,
    }
    Hub(*pair, files)
    on_disk(tmp_path, {**files, "config.json": b"{}"})
    same(read_remote("hf://org/name/Q8").manifest, checkpoint.read_checkpoint(str(tmp_path / "Q8")))
    same(
        read_remote("hf://org/name/Q8/x-00001-of-00002.gguf").manifest,
        checkpoint.read_checkpoint(str(tmp_path / "Q8")),
    )
    same(
        read_remote("hf://org/name/x.gguf").manifest,
        checkpoint.read_checkpoint(str(tmp_path / "x.gguf")),
    )
    same(
        read_remote(f"{pair[1].url}/Q8/x-00001-of-00002.gguf").manifest,
        checkpoint.read_checkpoint(str(tmp_path / "Q8")),
    )


@pytest.mark.parametrize("data", [zipped(VALID), legacy(VALID_OLD)], ids=["zip", "legacy"])
def test_remote_torch_files_are_read(pair: Pair, tmp_path: Path, data: bytes) -> None:
    files = {
        "original/consolidated.00.pth": data,
        "original/params.json": b'{"dim": 8, "n_layers": 2, "n_heads": 2, "vocab_size": 32}',
    }
    Hub(*pair, files)
    on_disk(tmp_path, {**files, "config.json": b"{}", "model.safetensors": DATA})
    same(
        read_remote("hf://org/name/original").manifest,
        checkpoint.read_checkpoint(str(tmp_path / "original")),
    )
    model = llamath.load("hf://org/name/original")
    assert model.parameters.total == llamath.load(str(tmp_path / "original")).parameters.total
    assert model.source == f"hf://org/name@{COMMIT}/original/params.json"


def test_load_reads_only_the_config(pair: Pair) -> None:
    endpoint, store = pair
    Hub(
        endpoint,
        store,
        {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": safetensors({"a": (2,)})},
    )
    expected = llamath.load(CONFIG).parameters.total
    model = llamath.load("hf://org/name")
    assert (model.name, model.parameters.total, model.source) == (
        "name",
        expected,
        f"hf://org/name@{COMMIT}/config.json",
    )
    assert not store.seen
    store.pages["/some/folder/config.json"] = file(json.dumps(CONFIG).encode())
    assert llamath.load(f"{store.url}/some/folder/config.json").parameters.total == expected
    assert llamath.load(f"{store.url}/some/folder/").name == "folder"
    assert (
        llamath.load(f"{endpoint.url}/org/name/blob/main/config.json?download=true").source
        == f"hf://org/name@{COMMIT}/config.json"
    )


def test_public_id_of_a_preset_uses_no_network(pair: Pair) -> None:
    for text in ("meta-llama/Meta-Llama-3-8B", "META-llama/meta-llama-3-8b"):
        model = llamath.load(text)
        assert model.parameters.total == 8_030_261_248 and model.source.startswith(
            "preset llama-3-8b: "
        )
    assert not pair[0].seen


def test_local_files_import_no_network_modules(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(safetensors({"a": (2,)}))
    code = f"import sys, llamath.checkpoint.open; llamath.checkpoint.open.open_checkpoint({str(tmp_path / 'a.safetensors')!r}); print(*sys.modules)"
    modules = set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    assert not modules & {
        "http.client",
        "urllib.request",
        "ssl",
        "socket",
        "fsspec",
        "huggingface_hub",
        "llamath.checkpoint.hub",
    }


def test_local_path_takes_precedence_over_hub_id(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    (tmp_path / "org" / "name" / "model.safetensors").write_bytes(safetensors({"here": (2,)}))
    (tmp_path / "org" / "name" / "config.json").write_text(json.dumps(CONFIG))
    checkpoint = open_checkpoint("org/name")
    assert [x.name for x in checkpoint.manifest.tensors] == [
        "here"
    ] and checkpoint.config.keys == CONFIG
    assert not checkpoint.is_remote and not checkpoint.commit_note
    for text in ("org/nothing.safetensors", "nothing", "./org/nothing"):
        with pytest.raises(FormatError):
            open_checkpoint(text)
    assert not pair[0].seen
    Hub(*pair, {"model.safetensors": safetensors({"there": (2,)})}, repo="org/other")
    with pytest.raises(FormatError, match="no such file in the folder org") as error:
        open_checkpoint("org/other")
    assert error.value.hint.startswith("hf://org/other ") and not pair[0].seen
    assert open_checkpoint("hf://org/other").commit_note == f"hf://org/other is at commit {COMMIT}"


def test_empty_and_tiny_remote_files_are_refused(site: Site) -> None:
    for size, code in ((0, "empty_file"), (3, "zeros"), (23, "zeros")):
        site.pages["/x"] = file(bytes(size))
        with pytest.raises(FormatError) as error:
            read_remote(f"{site.url}/x")
        assert error.value.code == code
        with HttpFile(f"{site.url}/x") as source:
            assert source.size == size and source.read(0, size) == bytes(size)


def test_ranges_equal_the_bytes_of_the_file(site: Site) -> None:
    data = random.Random(1).randbytes(5000)
    site.pages["/x"] = file(data)
    with HttpFile(f"{site.url}/x") as source:
        for start, end in [
            (0, 5000),
            (0, 24),
            (3, 9),
            (23, 25),
            (24, 24),
            (4999, 5000),
            (100, 4000),
            (5000, 5000),
        ]:
            assert source.read(start, end - start) == data[start:end]
        asked = len(site.seen)
        with pytest.raises(FormatError):
            source.read(4990, 11)
        assert len(site.seen) == asked
    assert len({x.headers["host"] for x in site.seen}) == 1


def test_remote_reads_stay_within_the_budget(site: Site) -> None:
    site.pages["/x"] = file(bytes(5000))
    with HttpFile(f"{site.url}/x", budget=3000) as source:
        source.read(0, 2000)
        with pytest.raises(RemoteError, match="needs more bytes than are read") as error:
            source.read(1000, 2000)
        assert error.value.code == "too_large"


def test_connections_are_reused(site: Site) -> None:
    site.pages["/x"] = file(bytes(5000))
    ports: set[int] = set()
    inner = site.pages["/x"]

    def page(handler: Handler) -> None:
        ports.add(handler.client_address[1])
        inner(handler)

    site.pages["/x"] = page
    with HttpFile(f"{site.url}/x") as source:
        for at in range(100, 1000, 100):
            source.read(at, 10)
    assert len(ports) == 1


# errors


@pytest.mark.parametrize(
    ("code", "headers", "expected", "says"),
    [
        (
            401,
            {"X-Error-Code": "RepoNotFound"},
            "unauthorized",
            "the model does not exist or is private",
        ),
        (401, {"X-Error-Code": "GatedRepo"}, "unauthorized", "it is gated"),
        (403, {}, "forbidden", "access is denied"),
        (404, {"X-Error-Code": "RevisionNotFound"}, "missing", "the revision does not exist"),
        (404, {}, "missing", "not found"),
        (429, {}, "busy", "too many requests"),
        (500, {}, "server", "server error"),
        (204, {}, "status", "unexpected response"),
        (416, {}, "status", "416"),
    ],
)
def test_http_errors_have_hints(
    pair: Pair, code: int, headers: dict[str, str], expected: str, says: str
) -> None:
    hub = Hub(*pair, {"model.safetensors": safetensors({"a": (2,)})})
    pair[0].pages[hub.api] = status(code, headers, b"" if code == 204 else b"no")
    with pytest.raises(RemoteError, match=says) as error:
        read_remote("org/name")
    assert error.value.code == expected
    assert "\x1b" not in str(error.value)


def test_insufficient_token_is_explained(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(*pair, {"model.safetensors": safetensors({"a": (2,)})})
    pair[0].pages[hub.resolve("model.safetensors")] = status(403, {"X-Error-Code": "GatedRepo"})
    hints = []
    for token in ("", TOKEN):
        monkeypatch.setenv("HF_TOKEN", token)
        with pytest.raises(RemoteError) as error:
            read_remote("org/name")
        hints.append(error.value.hint)
    assert "HF_TOKEN" in hints[0] and "your token was sent" in hints[1]


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_mode_sends_no_request(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    for read in (read_remote, read_config):
        with pytest.raises(RemoteError) as error:
            read("hf://org/name")
        assert error.value.code == "offline"
    assert not pair[0].seen


@pytest.mark.parametrize(
    "text",
    [
        "hf://",
        "hf://datasets/org/name",
        "hf://../name",
        "hf://org/..",
        "hf://org/name@",
        "hf://org name",
        "hf://org/name\r\nX: y",
        "hf://a..b/c",
    ],
)
def test_invalid_ids_are_refused(pair: Pair, text: str) -> None:
    with pytest.raises(RemoteError) as error:
        read_remote(text)
    assert error.value.code in ("id", "missing") and "\r" not in str(error.value)


@pytest.mark.parametrize(
    "scheme",
    [
        "file",
        "ftp",
        "local",
        "reference",
        "simplecache::memory",
        "github",
        "sftp",
        "data",
        "javascript",
    ],
)
def test_unknown_url_schemes_are_refused(scheme: str) -> None:
    for read in (read_remote, read_config):
        with pytest.raises(RemoteError) as error:
            read(f"{scheme}://somewhere/model.safetensors")
        assert error.value.code == "scheme"


def test_the_commit_is_pinned(pair: Pair) -> None:
    endpoint, _ = pair
    hub = Hub(
        *pair,
        {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": safetensors({"a": (2,)})},
    )
    hub.api_answer(endpoint.pages[hub.api], "a/branch")
    hub.api_answer(endpoint.pages[hub.api], "refs/pr/1")
    for text in ("hf://org/name@a%2Fbranch", "hf://org/name@refs/pr/1"):
        endpoint.seen.clear()
        assert read_remote(text).revision == COMMIT
        assert all(f"/{COMMIT}/" in x.path for x in endpoint.seen[1:])
    other = "f" * 40
    hub.api_answer(endpoint.pages[hub.api], other)
    with pytest.raises(RemoteError, match="returned commit 0123") as error:
        read_remote(f"hf://org/name@{other}")
    assert error.value.code == "api"


# on the command line


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, args)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_commands_print_the_commit_on_stderr(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    model = llamath.load(CONFIG)
    shapes = {x.name: tuple(map(int, x.shape)) for x in model.scheme("hf").tensors(model.tree)}
    files = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": safetensors(shapes)}
    hub = Hub(*pair, files)
    note = f"{{}} is at commit {COMMIT}\n"
    for name in ("org/name", "hf://org/name"):
        code, out, err = run("ls", name, "--json")
        assert (code, err) == (0, note.format(name)) and len(json.loads(out)["tensors"]) == len(
            shapes
        )
        code, out, err = run("verify", name, "--json")
        assert (code, err) == (0, note.format(name)) and json.loads(out)["ok"]
    code, out, err = run("count", "hf://org/name", "--json")
    assert json.loads(out)["source"] == f"hf://org/name@{COMMIT}/config.json"
    hub.store.pages["/model.safetensors"] = file(files["model.safetensors"][:-99])
    code, out, err = run("verify", "hf://org/name", "--json")
    assert (code, [x["code"] for x in json.loads(out)["findings"]]) == (1, ["truncated"])
    assert TOKEN not in out + err


def test_modelopt_recipe_on_the_hub_is_read(pair: Pair) -> None:
    endpoint, store = pair
    recipe = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]},
    }
    config = json.dumps(CONFIG | {"time_step_limit": [0.0, float("inf")]}).encode()
    Hub(
        endpoint,
        store,
        {
            "config.json": config,
            "hf_quant_config.json": json.dumps(recipe).encode(),
            "model.safetensors": safetensors({"a": (2,)}),
        },
    )
    for address in ("hf://org/name", "hf://org/name/config.json"):
        assert llamath.load(address).config.data["quantization_config"] == recipe


def test_remote_adapters_are_read_with_their_config(pair: Pair) -> None:
    q = "base_model.model.model.layers.0.self_attn.q_proj"
    config = {
        "peft_type": "LORA",
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj"],
        "base_model_name_or_path": "meta-llama/Llama-3.2-1B",
    }
    weights = safetensors({f"{q}.lora_A.weight": (4, 2048), f"{q}.lora_B.weight": (2048, 4)})
    Hub(
        *pair,
        {
            "adapter_config.json": json.dumps(config).encode(),
            "adapter_model.safetensors": weights,
            "training_args.bin": b"x",
        },
    )
    report = llamath.verify("hf://org/name")
    assert (
        isinstance(report, llamath.StructureReport)
        and report.model == "Llama 3.2 1B"
        and report.facts["ranks"] == [4]
    )
    assert [x.code for x in report.findings] == ["untrained"]  # of the other layers
    Hub(*pair, {"adapter_model.safetensors": weights})
    with pytest.raises(FormatError, match=r"expected adapter_config\.json"):
        llamath.verify("org/name")
