"""Process time of explaining a count over the whole catalog, and the rate of false explanations."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from harness import Command, keep, report, side_by_side

PYTHON = sys.executable
LLAMATH = str(Path(PYTHON).parent / "llamath")
NUMBERS = {
    "packed to 4 bits, with LoRA": "3540389888",
    "a vocabulary and LoRA": "6889689088",
    "a total": "8030261248",
    "adapters alone": "39976960",
    "nothing fits": "7000000001",
    "a name": "7B",
}
SEED, MANY = 11, 400
TRUTH = Path(__file__).parents[1] / "tests" / "truth"


def false_explanations(like: str | None, step: int = 1) -> dict[str, object]:
    """Count the random multiples of `step` that get an explanation or a guess: of all sizes, or
    with `like` near that model's total."""
    import llamath
    from llamath.analysis.understand.explain import explain_number
    from llamath.analysis.understand.explain.explanation import known_vocab_sizes, merge_equal_bases
    from llamath.catalog import presets

    catalog = sorted(presets(), key=lambda x: -len(x.ids) - len(x.aliases))
    bases, known, dice = (
        merge_equal_bases(iter(catalog)),
        known_vocab_sizes(catalog),
        random.Random(SEED),
    )
    total = llamath.load(like).parameters.total if like else 0
    chosen = [x.replace(named=True) for x in bases if x.total == total][:1] if like else bases
    hits = likely = 0
    for _ in range(MANY):
        number = step * int(
            (total * 2 ** dice.uniform(-3, 1) if like else 10 ** dice.uniform(6.5, 12)) / step
        )
        result = explain_number(
            number, [x for x in chosen if number < 4 * x.total], len(catalog), known
        )
        hits += any(x.exact for x in result.candidates)
        likely += result.explained
    what = like or f"all {len(catalog)} presets"
    numbers = "random numbers" if step == 1 else f"random multiples of {step:,}"
    print(f"  {what:40} {hits} of {MANY} {numbers} get a guess, {likely} of them an explanation")
    return {
        "title": f"{numbers}, {what}",
        "seed": SEED,
        "numbers": MANY,
        "guessed": hits,
        "explained": likely,
    }


def printed_and_made_up() -> list[dict[str, object]]:
    """Count the explanations of numbers that public programs printed, and the false ones among
    them, and those of numbers that no program can have printed.
    """
    import llamath

    first, second = (
        json.loads((TRUTH / f"{name}.json").read_text())
        for name in ("printed_counts", "printed_counts_2")
    )
    samples = (second, second["held_out"])
    every = [*first["counts"], *(x for y in samples for x in y["counts"])]
    printed = [x for x in every if x[2] is not None]
    explained = false = 0
    for number, what, words in printed:
        report = llamath.explain(number)
        if report.explained:
            found = report.candidates[0]
            explained += 1
            if not all(word in " ".join((found.summary, *found.also)) for word in words):
                false += 1
                print(f"  false: {number:,}, {what}: {found.summary}")
    print(f"  {explained} of {len(printed)} printed numbers are explained, {false} falsely")
    results: list[dict[str, object]] = [
        {
            "title": "printed numbers",
            "numbers": len(printed),
            "explained": explained,
            "false": false,
        }
    ]
    others = {
        "printed numbers whose cause is not known": [x[0] for x in every if x[2] is None],
        "made-up numbers": [x for y in samples for x in y["made_up"]],
    }
    for title, numbers in others.items():
        claimed = sum(llamath.explain(x).explained for x in numbers)
        print(f"  {claimed} of {len(numbers)} {title} get an explanation")
        results.append({"title": title, "numbers": len(numbers), "explained": claimed})
    return results


def main() -> None:
    commands: dict[str, Command] = {"python -c pass": [PYTHON, "-c", "pass"]}
    commands |= {name: [LLAMATH, "explain", x] for name, x in NUMBERS.items()}
    commands["with --like"] = [
        LLAMATH,
        "explain",
        NUMBERS["packed to 4 bits, with LoRA"],
        "--like",
        "llama-2-7b",
    ]
    results: list[dict[str, object]] = [
        report("explain", side_by_side(commands, 5, ("0", "1")), "python -c pass", 5)
    ]
    print()
    results += printed_and_made_up()
    results += [
        false_explanations(like)
        for like in (
            None,
            "llama-2-7b",
            "llama-3.2-1b",
            "deepseek-v3",
            "qwen2.5-0.5b",
            "gemma-2-9b",
        )
    ]
    results += [
        false_explanations(like, 1024)
        for like in ("llama-2-7b", "llama-3.2-1b", "deepseek-v3", "qwen3-30b-a3b")
    ]
    keep("explain", results)


if __name__ == "__main__":
    main()
