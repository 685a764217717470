"""`/api/NAME` answers what the command prints with `--json`, byte for byte, within the limits of the server."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

import llamath
from llamath.cli.report_tools import TOOLS, parameters, required
from llamath.utils.errors import ArgumentError, ConfigError, LlamathError, RemoteError, UnknownModel
from llamath.web.page_data.checkpoint_data import load_with_checkpoint
from llamath.web.server import work_slots
from llamath.web.server.error_page import PageError
from llamath.web.server.json_api import ApiAnswer
from llamath.web.server.timeouts import ConnectionLimits
from support.reference_data import computed_slugs
from support.serving import HANG_S, Place, served
from support.typed_commands import Typed

pytest.importorskip("uvicorn")
FOLDER = str(Path(__file__).parents[2] / "examples" / "tiny-llama")
GPUS = ("rtx-3060-12gb", "8xh100", "4090+3060-12gb", "mem=24GiB bw=1TB/s bf16=300TF")


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """A server whose answers may take as long as a busy machine needs."""
    limits = ConnectionLimits(response_seconds=HANG_S)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work_slots, "WORK_SECONDS", HANG_S)
        with served([load_with_checkpoint(FOLDER)], limits=limits) as found:
            yield found


def query(**values: object) -> str:
    return urlencode(
        {
            name: [str(y) for y in x] if isinstance(x, tuple) else str(x)
            for name, x in values.items()
        },
        doseq=True,
    )


REQUESTS: list[tuple[str, str]] = [
    *((f"{name} {slug}", f"{name}?{query(model=slug)}") for name in ("memory", "flops", "config", "fit") for slug in computed_slugs()[::80]),
    *((f"count {slug}", f"count?{query(model=slug)}") for slug in ("gpt2", "llama-3.1-405b", "gemma-3-4b", "qwen3.5-4b", "mixtral-8x7b")),
    *((f"fit llama-3.1-8b --on '{on}' --context max", f"fit?{query(model='llama-3.1-8b', on=on, context='max')}") for on in GPUS),
    ("facts deepseek-v3", "facts?model=deepseek-v3"),
    ("count meta-llama/Meta-Llama-3-8B", "count?model=meta-llama/Meta-Llama-3-8B"),
    ("count 'Llama 3 8B' --set tie_word_embeddings=true", f"count?{query(model='Llama 3 8B', set='tie_word_embeddings=true')}"),
    ("count llama-3.2-11b-vision --part vision", "count?model=llama-3.2-11b-vision&part=vision"),
    ("count dim=64,n_layers=2,n_heads=4,vocab_size=99", "count?model=dim=64,n_layers=2,n_heads=4,vocab_size=99"),
    (
        "memory llama-3-8b --context 8k --context 64k --kv-dtype fp8 --batch 3 --on rtx-4090",
        f"memory?{query(model='llama-3-8b', context=('8k', '64k'), kv_dtype='fp8', batch=3, on='rtx-4090')}",
    ),
    (
        "memory llama-3-8b --layout tp=2,dp=4 --training recompute=full --set num_hidden_layers=3 --set vocab_size=1000",
        "memory?"
        + query(model="llama-3-8b", layout="tp=2,dp=4", training="recompute=full")
        + "&set=num_hidden_layers=3&set=vocab_size=1000",
    ),
    ("memory llama-3-8b --lora r=16,targets=attention --dtype bnb-nf4", "memory?model=llama-3-8b&lora=r=16,targets=attention&dtype=bnb-nf4"),
    ("fit llama-3.1-8b --on 3060-12gb,4090", f"fit?{query(model='llama-3.1-8b', on='3060-12gb,4090')}"),
    ("fit minimax-m2 --on 8xh100 --engine vllm", "fit?model=minimax-m2&on=8xh100&engine=vllm"),
    ("fit llama-3.1-405b --on 16xh100 --layout tp=8,pp=2", "fit?model=llama-3.1-405b&on=16xh100&layout=tp=8,pp=2"),
    ("flops llama-3-8b --on 64xh100 --mfu 600000tok/s", f"flops?{query(model='llama-3-8b', on='64xh100', mfu='600000tok/s')}"),
    ("flops llava-1.5-7b --images 2x336 --recompute full", "flops?model=llava-1.5-7b&images=2x336&recompute=full"),
    ("diff llama-2-7b llama-3-8b", "diff?models=llama-2-7b&models=llama-3-8b"),
    ("diff gpt2 llama-3-8b mixtral-8x7b", "diff?models=gpt2&models=llama-3-8b&models=mixtral-8x7b"),
    ("diff gpt2 --nearest", "diff?models=gpt2&nearest=true"),
    ("diff llama-3-8b --set tie_word_embeddings=true", "diff?models=llama-3-8b&set=tie_word_embeddings=true"),
    ("design 8B", "design?target=8B"),
    ("design 70B --set num_hidden_layers=60:100 --set num_key_value_heads=8 --bounds max_kv_per_token=80KiB --top 3 --like qwen3", "design?target=70B&set=num_hidden_layers=60:100&set=num_key_value_heads=8&bounds=max_kv_per_token=80KiB&top=3&like=qwen3"),
    ("design --budget flops=5.76e23,law=besiroglu", "design?budget=flops=5.76e23,law=besiroglu"),
    ("models", "models?"),
    ("models llama moe --on 8xh100 --sort active", "models?words=llama&words=moe&on=8xh100&sort=active"),
    ("models qwen 3", "models?words=qwen&words=3"),
    ("explain 3540389888", "explain?number=3540389888"),
    ("explain 685B --like deepseek-v3 --all", "explain?number=685B&like=deepseek-v3&all=true"),
    ("names llama-3-8b", "names?model=llama-3-8b"),
    ("code llama-3-8b --form math --names hf", "code?model=llama-3-8b&form=math&names=hf"),
    ("names llama-3-8b --names gguf --dtype q4_k_m", "names?model=llama-3-8b&names=gguf&dtype=q4_k_m"),
    ("quants qwen3-8b --on rtx-4090", "quants?model=qwen3-8b&on=rtx-4090"),
    ("fit gpt-oss-120b --on rtx-3060-12gb --ram 64GiB --dtype mxfp4_moe", "fit?model=gpt-oss-120b&on=rtx-3060-12gb&ram=64GiB&dtype=mxfp4_moe"),
    ("fit llama-3.1-8b --on h100 --price 2/h", "fit?model=llama-3.1-8b&on=h100&price=2/h"),
    ("plan llama-3-8b --on 8xh100", "plan?model=llama-3-8b&on=8xh100"),
    ("plan llama-3-70b --on 8xh100 --serve --latency 50ms", "plan?model=llama-3-70b&on=8xh100&serve=true&latency=50ms"),
    ("gpus", "gpus?"),
    ("gpus rtx 40", "gpus?words=rtx&words=40"),
]  # fmt: skip

REFUSED: list[tuple[str, str, int]] = [
    ("count llama-3-8x", "count?model=llama-3-8x", 404),
    ("count llama-3-8b --set nonsense=1", "count?model=llama-3-8b&set=nonsense=1", 422),
    ("count llama-3-8b --set nonsense", "count?model=llama-3-8b&set=nonsense", 400),
    ("count llama-3-8b --part sound", "count?model=llama-3-8b&part=sound", 422),
    ("count", "count?", 400),
    ("memory llama-3-8b --context zero", "memory?model=llama-3-8b&context=zero", 422),
    ("memory llama-3-8b --batch x", "memory?model=llama-3-8b&batch=x", 422),
    ("memory llama-3-8b --batch -1", "memory?model=llama-3-8b&batch=-1", 422),
    ("memory llama-3-8b --dtype q99", "memory?model=llama-3-8b&dtype=q99", 422),
    ("fit llama-3-8b --on tpu-v99", "fit?model=llama-3-8b&on=tpu-v99", 422),
    ("fit llama-3-8b --layout tp=2", "fit?model=llama-3-8b&layout=tp=2", 422),
    ("diff gpt2", "diff?models=gpt2", 400),
    ("design", "design?", 422),
    ("design 8B --top 0", "design?target=8B&top=0", 422),
    ("models nosuchmodel", "models?words=nosuchmodel", 404),
    (
        "plan llama-3-8b --on 8xh100 --serve --tokens 1T",
        "plan?model=llama-3-8b&on=8xh100&serve=true&tokens=1T",
        422,
    ),
]


def words(line: str) -> list[str]:
    import shlex

    return [*shlex.split(line), "--json"]


@pytest.mark.parametrize(("line", "path"), REQUESTS, ids=[x for x, _ in REQUESTS])
def test_answers_equal_the_commands_byte_for_byte(
    typed: Typed, place: Place, line: str, path: str
) -> None:
    printed = typed(*words(line))
    status, headers, data = place.ask_bytes(f"{place.path}api/{path}")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert data == printed.out.encode() and headers["llamath-exit-code"] == str(printed.status)


@pytest.mark.parametrize(("line", "path", "expected"), REFUSED, ids=[x for x, _, _ in REFUSED])
def test_errors_are_the_commands_in_words_of_requests(
    typed: Typed, place: Place, line: str, path: str, expected: int
) -> None:
    printed = typed(*words(line))
    status, headers, data = place.ask_bytes(f"{place.path}api/{path}")
    assert printed.status == 2 and status == expected and headers["llamath-exit-code"] == "2"
    error, own = json.loads(data)["error"], json.loads(printed.out)["error"]
    assert "--" not in error["message"] + error["hint"]
    assert (error["code"], error.get("field")) == (own["code"], own.get("field"))


@pytest.mark.parametrize("name", ["count", "memory", "fit", "flops", "config", "quants", "names"])
def test_models_of_the_launch_are_answered_as_their_folders(
    typed: Typed, place: Place, name: str
) -> None:
    printed = typed(name, FOLDER, "--json")
    assert place.ask_bytes(f"{place.path}api/{name}?model=~1")[2] == printed.out.encode()


def test_every_tool_is_requested() -> None:
    assert {path.partition("?")[0] for _, path in REQUESTS} == {
        x.name for x in TOOLS.values() if not x.local
    }


NAMES_OF_FILES = (
    FOLDER,
    f"{FOLDER}/config.json",
    "./config.json",
    "-",
    "/etc/passwd",
    "https://x.invalid/config.json",
    "s3://a/b",
    "a/b",
)


@pytest.mark.parametrize("name", NAMES_OF_FILES)
def test_no_request_names_a_file_or_an_address(place: Place, name: str) -> None:
    for path in (
        f"count?{query(model=name)}",
        f"diff?{query(models=('gpt2', name))}",
        f"explain?{query(number='8B', like=name)}",
        f"design?{query(target='8B', like=name)}",
        f"design?{query(target='8B', like=name)}",
    ):
        status, _, text = place.ask(f"{place.path}api/{path}")
        assert (status, json.loads(text)["error"]["code"]) == (404, "unknown_model"), path


@pytest.mark.parametrize(
    "parameter",
    ["via", "picture", "force", "format", "json", "nothing", "Model", "--json"],
)
def test_parameters_that_touch_files_or_processes_are_unknown(place: Place, parameter: str) -> None:
    status, _, text = place.ask(
        f"{place.path}api/fit?model=gpt2&on=h100&{query(**{parameter: 'transformers'})}"
    )
    assert status == 400 and json.loads(text)["error"]["code"] == "usage"


@pytest.mark.parametrize("name", ["machine.json", "/etc/passwd", "../x", "mem=1GiB/x.json"])
def test_gpus_are_no_file(place: Place, name: str) -> None:
    status, _, text = place.ask(f"{place.path}api/fit?model=gpt2&{query(on=name)}")
    error = json.loads(text)["error"]
    assert (status, error["code"]) == (400, "usage") and "no file" in error["message"]


def test_a_value_is_never_an_option(place: Place, tmp_path: Path) -> None:
    target = tmp_path / "x.svg"
    for path in (
        f"models?words=--output={target}",
        f"design?target=--output={target}",
        f"count?model=--output={target}",
        "models?words=--help",
    ):
        assert place.ask(f"{place.path}api/{path}")[0] in (404, 422)
    assert not target.exists()


@pytest.mark.parametrize(
    "path",
    [
        "fit?model=gpt2&model=gpt2",
        "fit?model=gpt2&on=",
        "plan?model=gpt2&on=h100&serve=maybe",
        f"count?model={'x' * 5000}",
    ],
)
def test_malformed_parameters_are_refused(place: Place, path: str) -> None:
    status, _, text = place.ask(f"{place.path}api/{path}")
    assert status == 400 and json.loads(text)["error"]["code"] == "usage"


@pytest.mark.parametrize(
    "name", ["count", "memory", "fit", "flops", "names", "plan", "quants", "config"]
)
def test_a_model_of_a_billion_layers_is_refused(place: Place, name: str) -> None:
    for change in ("num_hidden_layers=1000000000", "num_hidden_layers=1001"):
        status, _, text = place.ask(
            f"{place.path}api/{name}?model=llama-3-8b&on=h100&set={change}".replace(
                "&on=h100", "&on=h100" * (name == "plan")
            )
        )
        assert (
            status == 422
            and "layers, and pages are limited to 1,000" in json.loads(text)["error"]["message"]
        )
    status, _, text = place.ask(
        f"{place.path}api/{name}?model=deepseek-v3&set=n_routed_experts=1000000000"
        + "&on=h100" * (name == "plan")
    )
    assert (
        status == 422
        and "weights, and pages are limited to 500,000" in json.loads(text)["error"]["message"]
    )


def test_answers_are_compressed_for_clients_that_accept_it(place: Place) -> None:
    path = f"{place.path}api/models"
    _, plain_headers, plain = place.ask_bytes(path)
    _, headers, data = place.ask_bytes(path, Accept_Encoding="br, gzip")
    assert headers["content-encoding"] == "gzip" and "content-encoding" not in plain_headers
    assert plain_headers["vary"] == headers["vary"] == "Accept-Encoding"
    assert gzip.decompress(data) == plain and len(data) * 4 < len(plain)


def test_notes_of_the_command_are_a_header(place: Place) -> None:
    _, headers, _ = place.ask(f"{place.path}api/fit?model=llama-3-8b&on=rtx-3060-12gb&context=128k")
    assert headers["llamath-exit-code"] == "1"
    assert (
        json.loads(headers["llamath-notes"])
        == "warning: 131,072 tokens are more than the model's own context, 8,192"
    )


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "x.invalid"}, 421),
        ({"Origin": "http://x.invalid"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"method": "POST"}, 415),
        ({"method": "PUT"}, 405),
        ({"method": "OPTIONS"}, 405),
        ({"body": b"x"}, 413),
    ],
)
def test_the_access_policy_holds_for_the_api(
    place: Place, headers: dict[str, object], status: int
) -> None:
    found, _, text = place.ask(f"{place.path}api/count?model=gpt2", **headers)  # type: ignore[arg-type]
    assert (found, text) == (status, "refused")


def test_the_token_is_needed(place: Place) -> None:
    assert place.ask("/api/count?model=gpt2")[0] == place.ask("/x/api/count?model=gpt2")[0] == 404
    status, headers, _ = place.ask(f"{place.path}api/count?model=gpt2", "HEAD")
    assert (
        status == 200
        and int(headers["content-length"]) > 1000
        and headers["cache-control"] == "no-store"
    )
    assert not {x for x in headers if x.startswith("access-control")}


def test_repositories_are_read_only_with_hub(place: Place) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        with served([], hub=True) as hub:
            status, _, text = hub.ask(f"{hub.path}api/count?model=no-one/nothing")
    assert status == 424 and "HF_HUB_OFFLINE" in json.loads(text)["error"]["message"]
    assert place.ask(f"{place.path}api/count?model=no-one/nothing")[0] == 404


@pytest.mark.parametrize(
    ("error", "is_usage", "status"),
    [
        (None, False, 200),
        (LlamathError("x"), True, 400),
        (LlamathError("x"), False, 422),
        (ConfigError("x"), False, 422),
        (ArgumentError("x", "y"), False, 422),
        (UnknownModel("x"), False, 404),
        (RemoteError("missing", "x"), False, 404),
        (RemoteError("offline", "x"), False, 424),
        (PageError(429, "x"), False, 429),
    ],
)
def test_each_kind_of_error_has_its_status(
    error: LlamathError | None, is_usage: bool, status: int
) -> None:
    assert ApiAnswer(text="", error=error, is_usage=is_usage).status == status


def test_required_parameters_are_marked() -> None:
    found = {
        x.name: [name for name, y in parameters(x).items() if required(name, y)]
        for x in TOOLS.values()
    }
    assert (
        found["fit"] == ["model"]
        and found["plan"] == ["model", "on"]
        and found["design"] == []
        and found["diff"] == ["models"]
    )


def test_export_refuses_a_billion_layers(typed: Typed, tmp_path: Path) -> None:
    config = dict(llamath.load("llama-3-8b").config.data) | {"num_hidden_layers": 1_000_000_000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for command in (
        ("export", tmp_path, "-o", tmp_path / "x.html"),
        ("serve", tmp_path, "--no-browser"),
    ):
        found = typed(*command)
        assert (
            found.status == 2
            and "1,000,000,000 layers, and pages are limited to 1,000" in found.err
        )
    assert not (tmp_path / "x.html").exists()
