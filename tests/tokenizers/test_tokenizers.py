"""Tokenizers from every file format, compared with sentencepiece, tiktoken and transformers."""

from __future__ import annotations

import base64
import io
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest
import sentencepiece
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from llamath.tokenizers import Tokenizer, load_tokenizer
from llamath.tokenizers.pretokenizers import SPLIT_PATTERNS
from llamath.tokenizers.read_tokenizer import special_tokens
from llamath.tokenizers.vocabulary_engines import byte_alphabet
from llamath.utils.errors import FormatError, LlamathError
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

WORDS = "the cat sat on a mat while two dogs ran 42 miles, don't they? Über 漢字かな \U0001f600 naïve\tx\n\nend  of   line".split(
    " "
)
TEXTS = [
    "",
    " ",
    "the cat",
    "  the  cat  ",
    "漢字 and \U0001f600!",
    "don't\n\n stop  \t42 12345",
    "the<s>cat</s>",
    "\u2581x",
    "e\u0301",
    "\0",
]
Pair = tuple[sentencepiece.SentencePieceProcessor, Tokenizer, bool]
some_text = st.one_of(
    st.text(max_size=60),
    st.lists(st.sampled_from([*WORDS, " ", "\n"]), max_size=20).map(" ".join),
    st.sampled_from(TEXTS),
)


def corpus(lines: int = 3000) -> Iterator[str]:
    rng = random.Random(0)
    return (" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(lines))


def train(**options: object) -> bytes:
    model = io.BytesIO()
    usual = {
        "vocab_size": 420,
        "byte_fallback": True,
        "character_coverage": 0.999,
        "hard_vocab_limit": False,
        "minloglevel": 2,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=corpus(), model_writer=model, **(usual | options)
    )
    return model.getvalue()


LLAMA_LIKE = {
    "model_type": "bpe",
    "remove_extra_whitespaces": False,
    "normalization_rule_name": "identity",
    "split_digits": True,
    "allow_whitespace_only_pieces": True,
}
SENTENCEPIECE = {
    "llama": LLAMA_LIKE,
    "gemma": LLAMA_LIKE
    | {"add_dummy_prefix": False, "user_defined_symbols": ["<start_of_turn>", "<end_of_turn>"]},
    "unigram": {
        "model_type": "unigram",
        "remove_extra_whitespaces": False,
        "normalization_rule_name": "identity",
    },
}


@pytest.fixture(scope="module", params=SENTENCEPIECE)
def pieces(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    path = tmp_path_factory.mktemp(request.param) / "tokenizer.model"
    path.write_bytes(train(**SENTENCEPIECE[request.param]))
    return (
        sentencepiece.SentencePieceProcessor(model_file=str(path)),
        load_tokenizer(str(path)),
        request.param == "unigram",
    )


@settings(max_examples=400, deadline=None)
@given(text=some_text)
def test_ids_equal_those_of_sentencepiece(pieces: Pair, text: str) -> None:
    theirs, ours, _ = pieces
    expected = theirs.encode(text)
    assert ours.encode(text) == [theirs.bos_id(), *expected]
    assert ours.encode(text, add_special_tokens=False) == expected
    assert ours.decode(expected) == theirs.decode(expected)
    assert (ours.bos_id, ours.stop_ids, ours.vocab_size) == (
        theirs.bos_id(),
        {theirs.eos_id()},
        theirs.vocab_size(),
    )


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_unigram_encodes_names_of_special_tokens_as_text(
    byte_fallback: bool, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(
        train(
            **SENTENCEPIECE["unigram"],
            byte_fallback=byte_fallback,
            vocab_size=420 if byte_fallback else 150,
        )
    )
    theirs, ours = (
        sentencepiece.SentencePieceProcessor(model_file=str(path)),
        load_tokenizer(str(path)),
    )
    rng = random.Random(0)
    names = ("<s>", "</s>", "<unk>", "<0x41>", "<", "<s", "<<s>>", "</s></s>", "\u2581<unk>")
    for _ in range(1_000):
        text = "".join(rng.choice((*WORDS, *names, " ")) for _ in range(rng.randint(1, 8)))
        assert ours.encode(text, add_special_tokens=False) == theirs.encode(text), text


@pytest.fixture(scope="module")
def byte_level() -> Engine:
    """A small byte-level BPE, trained here with Llama 3's split pattern."""
    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=sorted(byte_alphabet().values()), show_progress=False
    )
    engine.train_from_iterator(corpus(), trainer)
    return engine


def ranks(engine: Engine) -> list[bytes]:
    """Its tokens as bytes, single bytes first."""
    letters = {letter: byte for byte, letter in byte_alphabet().items()}
    tokens = sorted(engine.get_vocab(), key=lambda x: engine.get_vocab()[x])
    return [
        bytes(map(letters.__getitem__, token)) for token in sorted(tokens, key=lambda x: len(x) > 1)
    ]


@pytest.fixture(scope="module")
def llama_3(
    byte_level: Engine, tmp_path_factory: pytest.TempPathFactory
) -> tuple[tiktoken.Encoding, Tokenizer]:
    path = tmp_path_factory.mktemp("tiktoken") / "tokenizer.model"
    tokens = ranks(byte_level)
    path.write_bytes(
        b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens))
    )
    marks = {name: len(tokens) + i for i, name in enumerate(special_tokens())}
    theirs = tiktoken.Encoding(
        "tiny",
        pat_str=SPLIT_PATTERNS["llama-3"][0],
        mergeable_ranks={x: i for i, x in enumerate(tokens)},
        special_tokens=marks,
    )
    return theirs, load_tokenizer(str(path))


@settings(max_examples=400, deadline=None)
@given(text=some_text)
def test_ids_equal_those_of_tiktoken(
    llama_3: tuple[tiktoken.Encoding, Tokenizer], text: str
) -> None:
    theirs, ours = llama_3
    expected = theirs.encode(text, disallowed_special=())
    assert ours.encode(text, add_special_tokens=False) == expected
    assert ours.encode(text) == [theirs.encode_single_token("<|begin_of_text|>"), *expected]
    assert ours.decode(expected) == theirs.decode(expected) == text
    assert ours.vocab_size == theirs.n_vocab


def test_special_tokens_are_text_unless_parsed(
    llama_3: tuple[tiktoken.Encoding, Tokenizer],
) -> None:
    theirs, ours = llama_3
    text = "a<|eot_id|>b"
    assert ours.encode(text, add_special_tokens=False) == theirs.encode(text, disallowed_special=())
    assert ours.encode(text, add_special_tokens=False, parse_special_tokens=True) == theirs.encode(
        text, allowed_special="all"
    )
    assert ours.stop_ids == {
        theirs.encode_single_token(x) for x in ("<|end_of_text|>", "<|eot_id|>", "<|eom_id|>")
    }
    assert (
        ours.token_id("<|eot_id|>") == theirs.encode_single_token("<|eot_id|>")
        and ours.token_id("nothing") is None
    )


def test_llama_3_special_tokens_have_published_ids() -> None:
    """Llama 3.1's tokenizer_config.json: ids 128000 to 128255."""
    names = special_tokens()
    published = {
        128000: "<|begin_of_text|>",
        128001: "<|end_of_text|>",
        128002: "<|reserved_special_token_0|>",
        128005: "<|reserved_special_token_2|>",
    }
    published |= {
        128006: "<|start_header_id|>",
        128008: "<|eom_id|>",
        128009: "<|eot_id|>",
        128011: "<|reserved_special_token_3|>",
    }
    assert {path: names[path - 128000] for path in published} == published
    assert names[255] == "<|reserved_special_token_247|>" and len(set(names)) == 256


@settings(max_examples=200, deadline=None)
@given(text=some_text)
def test_streamed_text_equals_decoded_text(
    llama_3: tuple[tiktoken.Encoding, Tokenizer], text: str
) -> None:
    _, ours = llama_3
    ids = ours.encode(text, add_special_tokens=False)
    stream = ours.decode_stream(ours.encode("the cat"))
    assert "".join(map(stream, ids)) == text


def gguf_file(path: Path, kind: str, pieces: list[tuple[str, float, int]], **keys: object) -> str:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(kind)
    texts, scores, kinds = zip(*pieces, strict=True)
    writer.add_token_list(texts)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    for name, value in keys.items():
        getattr(writer, f"add_{name}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


@pytest.fixture(scope="module")
def llama_gguf(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[sentencepiece.SentencePieceProcessor, Tokenizer]:
    folder = tmp_path_factory.mktemp("gguf")
    theirs = sentencepiece.SentencePieceProcessor(model_proto=train(**LLAMA_LIKE))
    kinds = [
        (theirs.is_unknown, 2),
        (theirs.is_control, 3),
        (theirs.is_unused, 5),
        (theirs.is_byte, 6),
    ]
    pieces = [
        (
            theirs.id_to_piece(i),
            theirs.get_score(i),
            next((kind for test, kind in kinds if test(i)), 1),
        )
        for i in range(theirs.vocab_size())
    ]
    return theirs, load_tokenizer(
        gguf_file(folder / "a.gguf", "llama", pieces, bos_token_id=1, eos_token_id=2)
    )


@settings(max_examples=200, deadline=None)
@given(text=some_text)
def test_sentencepiece_vocabulary_in_gguf(
    llama_gguf: tuple[sentencepiece.SentencePieceProcessor, Tokenizer], text: str
) -> None:
    theirs, ours = llama_gguf
    assert ours.encode(text) == [1, *theirs.encode(text)]
    assert ours.stop_ids == {2}


@pytest.fixture(
    scope="module",
    params=["llama-bpe", "gpt-2", "qwen2", "deepseek-v3", "gpt-4o", "tekken", "smollm"],
)
def bytes_gguf(
    request: pytest.FixtureRequest, byte_level: Engine, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Engine, Tokenizer]:
    """A GGUF vocabulary, and the same as a tokenizer.json with its split pattern."""
    from llamath.tokenizers.pretokenizers import GGUF_PRETOKENIZERS

    config = json.loads(byte_level.to_str())
    merges = [" ".join(x) for x in config["model"]["merges"]]
    tokens = sorted(config["model"]["vocab"], key=config["model"]["vocab"].__getitem__)
    pieces = [(x, 0.0, 1) for x in tokens] + [("<|end|>", 0.0, 3), ("<tool>", 0.0, 4)]
    path = tmp_path_factory.mktemp("bytes") / "a.gguf"
    keys = {"tokenizer_pre": request.param, "token_merges": merges, "eos_token_id": len(tokens)}
    ours = load_tokenizer(gguf_file(path, "gpt2", pieces, **keys))
    theirs = Engine.from_str(json.dumps(config))
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(
                pre_tokenizers.Split(tokenizers_regex(x), "isolated")
                for x in SPLIT_PATTERNS[GGUF_PRETOKENIZERS[request.param]]
            ),
            pre_tokenizers.ByteLevel(False, False, False),
        ]
    )
    theirs.add_special_tokens(["<|end|>"])
    theirs.add_tokens(["<tool>"])
    return theirs, ours


def tokenizers_regex(pattern: str) -> object:
    from tokenizers import Regex

    return Regex(pattern)


@settings(max_examples=100, deadline=None)
@given(text=some_text)
def test_byte_level_vocabulary_in_gguf(bytes_gguf: tuple[Engine, Tokenizer], text: str) -> None:
    theirs, ours = bytes_gguf
    text = text + "<tool>" + text
    assert ours.encode(text, add_special_tokens=False) == theirs.encode(text).ids
    assert ours.decode(ours.encode(text, add_special_tokens=False)) == text
    assert ours.stop_ids == {theirs.token_to_id("<|end|>")}


def test_tokenizer_json_equals_transformers(byte_level: Engine, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    engine = Engine.from_str(byte_level.to_str())
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens(["<s>", "</s>"])
    start = [("<s>", engine.token_to_id("<s>"))]
    engine.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=start)
    engine.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": {"content": "<s>"}, "eos_token": "</s>"})
    )
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 5]}))
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(str(tmp_path))
    for text in [*TEXTS, *WORDS, " ".join(WORDS)]:
        assert ours.encode(text, parse_special_tokens=True) == theirs(text)["input_ids"], text
        assert ours.decode(ours.encode(text, parse_special_tokens=True)) == theirs.decode(
            theirs(text)["input_ids"], skip_special_tokens=True
        )
    assert (ours.bos_id, ours.stop_ids, ours.vocab_size) == (
        theirs.vocab["<s>"],
        {3, 5, theirs.vocab["</s>"]},
        len(theirs),
    )


BROKEN = {
    "not.json": b'{"model": 1}',
    "no_model.json": b"{}",
    "cut.json": b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0',
    "negative.json": b'{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}',
    "merges.json": b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}}',
    "empty": b"",
    "binary": bytes(range(256)),
    "no_rank": b"YQ==\n",
    "wrong_rank": b"YQ== 0\nYg== 2\n",
    "not_all_bytes": b"YQ== 0\nYg== 1\n",
    "twice": b"YQ== 0\nYQ== 1\n",
    "cut_piece": b"\n\xff",
    "wrong_wire": b"\x0b",
    "piece_without_score": b"\n\x06\n\x04\xff\xfe\xfd\xfc",
    "a_long_piece": b"\n\x8a\x80\x04\n\x84\x80\x04"
    + b"a" * 65540
    + b"\x15\0\0\0\0\x1a\x02\x18\x02",
    "gguf": b"GGUF\x03\0\0\0" + bytes(16),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_tokenizer_raises_llamath_error(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(BROKEN[name])
    with pytest.raises(LlamathError):
        load_tokenizer(str(tmp_path / name))


def test_invalid_gguf_vocabularies_are_refused(tmp_path: Path) -> None:
    a = [("a", 0.0, 1)]
    for pieces, kind, keys, expected in [
        (a * 2, "llama", {}, "distinct tokens"),
        (a, "bert", {}, "the tokenizer model llama, gpt2 or t5, found bert"),
        (a, "gpt2", {"tokenizer_pre": "qwen22"}, "qwen2"),
        (a, "gpt2", {"tokenizer_pre": "gpt-2", "token_merges": ["a b"]}, "merges"),
    ]:
        with pytest.raises(FormatError) as error:
            load_tokenizer(gguf_file(tmp_path / "a.gguf", kind, pieces, **keys))
        assert expected in f"{error.value} {error.value.hint}"


def test_folder_without_tokenizer_names_the_expected_files(tmp_path: Path) -> None:
    with pytest.raises(LlamathError, match=r"tokenizer.json, tokenizer.model and no GGUF"):
        load_tokenizer(str(tmp_path))


def test_text_that_is_not_utf8_is_refused(llama_3: tuple[tiktoken.Encoding, Tokenizer]) -> None:
    with pytest.raises(LlamathError, match=r"not UTF-8.*character 3"):
        llama_3[1].encode("abc\ud800")


def hostile_json(**rules: object) -> bytes:
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": [],
            **rules,
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
        }
    ).encode()


def replace(pattern: object, content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": pattern, "content": content}


MULTIPLYING = {
    "doubling": {"type": "Sequence", "normalizers": [replace({"String": "a"}, "aa")] * 40},
    "long": replace({"String": "a"}, "a" * 100_000),
    "empty match": replace({"Regex": "x*"}, "a" * 1000),
    "nested": {
        "type": "Sequence",
        "normalizers": [{"type": "Sequence", "normalizers": [replace({"String": "a"}, "aaaa")] * 3}]
        * 9,
    },
    "many rules": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 1000},
}


MULTIPLYING |= {
    "without a type": {"pattern": {"String": "a"}, "content": "a" * 100_000},
    "sequence without a type": {"normalizers": [{"prepend": "a" * 20}, {"prepend": "a" * 20}]},
    "prepended": {"type": "Prepend", "prepend": "a" * 1000},
}


def template(count: int, ids: int) -> dict[str, object]:
    token = {"SpecialToken": {"id": "X", "type_id": 0}}
    text = [{"Sequence": {"id": x, "type_id": 0}} for x in "AB"]
    special = {"X": {"id": "X", "ids": [0] * ids, "tokens": ["a"] * ids}}
    return {
        "type": "TemplateProcessing",
        "single": [token] * count + text[:1],
        "pair": text,
        "special_tokens": special,
    }


def charsmap(size: int, data: bytes) -> dict[str, object]:
    return {
        "type": "Precompiled",
        "precompiled_charsmap": base64.b64encode(size.to_bytes(4, "little") + data).decode(),
    }


REGEX = {"type": "Replace", "pattern": {"Regex": "[ab]*?[^ab]"}, "content": "x"}
REFUSED = {
    "template of many tokens": {"post_processor": template(10_000, 1)},
    "token of many ids": {"post_processor": template(1, 10_000)},
    "many tokens of many ids": {"post_processor": template(20_000, 20_000)},
    "templates in templates": {
        "post_processor": {"type": "Sequence", "processors": [template(3, 1)] * 5}
    },
    "regular expression in the decoder": {
        "decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, REGEX]}
    },
    "decoder without a type": {"decoder": {"pattern": {"Regex": "a"}, "content": "x"}},
    "charsmap of 4 GiB": {"normalizer": charsmap(2**32 - 4, bytes(16))},
    "charsmap of odd size": {
        "normalizer": {"type": "Sequence", "normalizers": [charsmap(7, bytes(16))]}
    },
    "charsmap that is cut": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAA="}},
}


def test_duplicate_keys_are_refused_before_the_library_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for text in (
        '{"normalizer": {"type": "NFC"}, "model": {"type": "BPE", "vocab": {}, "merges": []}, "normalizer": null}',
        '{"model": {"type": "BPE", "vocab": {"a": 0}, "vocab": {}, "merges": []}}',
        '{"normalizer": {"type": "NFC"}, "norma\\u006cizer": null}',
    ):
        path.write_text(text)
        with pytest.raises(LlamathError, match="occurs twice"):
            load_tokenizer(str(path))


@pytest.mark.parametrize("name", REFUSED)
def test_rules_that_exhaust_memory_or_time_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(hostile_json(**REFUSED[name]))
    with pytest.raises(
        LlamathError, match=r"tokenizer\.json: (?:precompiled_charsmap: )?expected a"
    ):
        load_tokenizer(str(path))


def test_ordinary_templates_and_prefixes_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(
        hostile_json(normalizer={"type": "Prepend", "prepend": "▁"}, post_processor=template(3, 2))
    )
    assert load_tokenizer(str(path)).encode("ab") == [0] * 6 + [0, 1]


@pytest.mark.parametrize("name", MULTIPLYING)
def test_rules_that_multiply_a_text_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(hostile_json(normalizer=MULTIPLYING[name]))
    with pytest.raises(LlamathError, match=r"expected a normalizer of at most 100 rules"):
        load_tokenizer(str(path))


SLOW = {"type": "Split", "pattern": {"Regex": "[ab]*?c"}, "behavior": "Isolated", "invert": False}
"""Looks for a c from every position of a text to its end, in quadratic time."""


def test_encoding_ends_at_a_time_limit(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(hostile_json(pre_tokenizer=SLOW))
    tokenizer = load_tokenizer(str(path))
    assert tokenizer.encode("ab") == [0, 1]
    tokenizer.time_limit = -100.0  # with the time for the length of the text, none is left
    with pytest.raises(LlamathError, match="found it still running"):
        tokenizer.encode("a" * 1_000_000)


def test_encoding_can_be_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(hostile_json(pre_tokenizer=SLOW))
    program = (
        "import signal, sys; from llamath.tokenizers import load_tokenizer\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it\n"
        "tokenizer = load_tokenizer(sys.argv[1]); print('ready', flush=True)\n"
        "tokenizer.encode('a' * 1_000_000)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0 and b"KeyboardInterrupt" in errors
