"""Units: every form parses to its value, and ambiguous ones are errors with a hint."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamath.utils.errors import LlamathError
from llamath.utils.units import (
    parse_bandwidth,
    parse_bytes,
    parse_count,
    parse_flops,
    parse_quantity,
    parse_tokens,
    tokens_note,
)

READ = [
    (parse_bytes, "24GB", 24_000_000_000),
    (parse_bytes, "24GiB", 25_769_803_776),
    (parse_bytes, " 24 GiB ", 25_769_803_776),
    (parse_bytes, "81559MiB", 85_520_809_984),
    (parse_bytes, "1.5KiB", 1536),
    (parse_bytes, "512B", 512),
    (parse_bytes, "1kB", 1000),
    (parse_bytes, "0.5TB", 500_000_000_000),
    (parse_bytes, "1,024MiB", 2**30),
    (parse_tokens, "4096", 4096),
    (parse_tokens, "128k", 131_072),
    (parse_tokens, "128K", 131_072),
    (parse_tokens, "128000", 128_000),
    (parse_tokens, "131,072", 131_072),
    (parse_tokens, "1M", 1_048_576),
    (parse_tokens, "1.5k", 1536),
    (parse_bandwidth, "3.35TB/s", 3_350_000_000_000),
    (parse_bandwidth, "900GB/s", 900_000_000_000),
    (parse_bandwidth, "400Gbit/s", 50_000_000_000),
    (parse_flops, "989TF", 989_000_000_000_000),
    (parse_flops, "989TFLOPS", 989_000_000_000_000),
    (parse_flops, "989.4 TFLOP/s", 989_400_000_000_000),
    (parse_flops, "1.979PF", 1_979_000_000_000_000),
    (parse_flops, "624TOPS", 624_000_000_000_000),
    (parse_count, "405B", 405_000_000_000),
    (parse_count, "405b", 405_000_000_000),
    (parse_count, "1.5e9", 1_500_000_000),
    (parse_count, "500M", 500_000_000),
    (parse_count, "3.8e25", 38 * 10**24),
    (parse_count, "15T", 15 * 10**12),
    (parse_count, "8,030,261,248", 8_030_261_248),
    (parse_count, "8_030_261_248", 8_030_261_248),
]

REFUSED = [
    *(
        (parse_bytes, x)
        for x in (
            "80G",
            "80",
            "80Gb",
            "80gb",
            "80 gigabytes",
            "-80GB",
            "",
            "GB",
            "0GB",
            "1e99GB",
            "8 0GB",
            "1,0GB",
            "0.1B",
            "٣GB",
        )
    ),
    *((parse_tokens, x) for x in ("128kB", "-1", "0", "1.5", "abc", "128 000", "1e30")),
    *((parse_bandwidth, x) for x in ("3.35TB", "400Gbps", "400Gb/s", "3.35", "0GB/s")),
    *((parse_flops, x) for x in ("989", "989T", "989TB/s", "-989TF")),
    *((parse_count, x) for x in ("405X", "1.5", "-7B", "0", "1e", "0.0B", "1_0B")),
]


@pytest.mark.parametrize(("reader", "text", "value"), READ)
def test_quantity_is_parsed(reader: Callable[[str], int], text: str, value: int) -> None:
    assert reader(text) == value


@pytest.mark.parametrize(("reader", "text"), REFUSED)
def test_ambiguous_quantity_is_an_error(reader: Callable[[str], int], text: str) -> None:
    with pytest.raises(LlamathError) as refused:
        reader(text)
    assert refused.value.hint.startswith("use ")


def test_ambiguous_size_names_both_readings() -> None:
    with pytest.raises(LlamathError, match="by 1,000 or by 1,024") as refused:
        parse_bytes("80G")
    assert "GB" in refused.value.hint and "GiB" in refused.value.hint
    with pytest.raises(LlamathError, match="a small b is a bit"):
        parse_bytes("80Gb")


def test_tokens_note_gives_the_value_of_k() -> None:
    assert tokens_note("128k") == "128k is 131,072 tokens"
    assert tokens_note("131072") == ""


def test_quantity_knows_its_precision() -> None:
    assert [(parse_quantity(x).digits, parse_quantity(x).exact) for x in ("405B", "1.5e9", "500M", "0.5B", "1.50B")] == [
        (3, False), (2, False), (3, False), (1, False), (3, False),
    ]  # fmt: skip
    assert parse_quantity("8030261248").exact and parse_quantity("8,030,261,248").digits == 10


@given(st.integers(1, 10**6), st.integers(1, 4))
def test_printed_size_parses_back(n: int, power: int) -> None:
    assert parse_bytes(f"{n}{'kMGT'[power - 1]}B") == n * 1000**power
    assert parse_bytes(f"{n}{'KMGT'[power - 1]}iB") == n * 1024**power


@given(st.text(max_size=20))
def test_any_text_is_parsed_or_an_error(text: str) -> None:
    for reader in (parse_bytes, parse_tokens, parse_bandwidth, parse_flops, parse_count):
        try:
            assert reader(text) >= 1
        except LlamathError as refused:
            assert str(refused)
