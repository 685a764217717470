"""Train the embedded model: a small Llama that knows a little world, written to `src/llamath/embedded` in Hugging Face's format.

    python tools/train_tiny.py             # train and write it
    python tools/train_tiny.py --evaluate  # measure what is there, and write its README

The modules are `llamath.run`'s, the loop is PyTorch's, the texts are made by `tools/tiny`. With the same seed, versions, machine and
number of threads the numbers are equal to the last bit; another processor may round otherwise.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import llamath
from llamath import run
from tiny.readme import readme
from tiny.save import save
from tiny.texts import first, rows, texts, tokenizer

FOLDER = Path(__file__).parents[1] / "src" / "llamath" / "embedded"
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 768, "hidden_size": 128, "intermediate_size": 320,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True, "attention_bias": False,
    "mlp_bias": False, "bos_token_id": 0, "eos_token_id": [1, 3], "torch_dtype": "bfloat16",
}  # fmt: skip
STEPS, TOKENS, RATE, WARM, STD, SEED = 2400, 1024, 3e-3, 100, 0.08, 1
EASY = 600  # steps with short scenes alone
ROWS = {"easy": 128, "short": 128, "long": 512}  # tokens in a row


def rate(step: int, steps: int) -> float:
    """Up in a line, level, and in the last quarter down in a line to nothing."""
    return RATE * min(1.0, (step + 1) / WARM, (steps - step) / (steps / 4))


def optimisers(module: torch.nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers (Jordan et al. 2024), AdamW for the embedding and the norms."""
    matrices = [x for name, x in module.named_parameters() if x.dim() > 1 and name.startswith("layers.")]
    others = [x for name, x in module.named_parameters() if x.dim() < 2 or not name.startswith("layers.")]
    return [
        torch.optim.Muon(matrices, lr=RATE, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=RATE, weight_decay=0.0, betas=(0.9, 0.95), fused=True),
    ]


class Training:
    """A model on its way, which may be stopped and taken up again."""

    def __init__(self, seed: int = SEED) -> None:
        self.module = run.initialise(run.build(llamath.load(CONFIG)), seed, STD)
        self.optimisers, self.done, self.mean = optimisers(self.module), 0, 0.0
        streams = {"easy": first(seed), "short": texts(seed), "long": texts(seed + 1)}
        self.streams = {stage: rows(x, tokenizer(CONFIG["vocab_size"]), ROWS[stage]) for stage, x in streams.items()}

    def batch(self, step: int, steps: int) -> tuple[torch.Tensor, ...]:
        """The rows of a step, and what should follow: short scenes first, long rows in the last quarter."""
        stage = "easy" if step < EASY else "long" if step >= steps * 3 // 4 else "short"
        return torch.tensor([next(self.streams[stage]) for _ in range(TOKENS // ROWS[stage])]).unbind(1)

    def step(self, steps: int) -> float:
        """Learn from one batch; of so many steps in all."""
        for group in (group for x in self.optimisers for group in x.param_groups):
            group["lr"] = rate(self.done, steps)
        ids, following = self.batch(self.done, steps)
        loss = cross_entropy(self.module(ids).flatten(0, 1), following.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        for x in self.optimisers:
            x.step()
            x.zero_grad()
        self.mean = loss.item() if not self.done else 0.98 * self.mean + 0.02 * loss.item()
        self.done += 1
        return loss.item()

    def save(self, path: Path) -> None:
        """Where it stands."""
        states = [x.state_dict() for x in self.optimisers]
        torch.save({"module": self.module.state_dict(), "optimisers": states, "done": self.done, "mean": self.mean}, path)

    def resume(self, path: Path, steps: int) -> None:
        """Go on from there, with the texts that come next."""
        found = torch.load(path)
        self.module.load_state_dict(found["module"])
        for x, state in zip(self.optimisers, found["optimisers"], strict=True):
            x.load_state_dict(state)
        self.done, self.mean = found["done"], found["mean"]
        for step in range(self.done):
            self.batch(step, steps)


def train(steps: int, keep: Path | None = None, every: int = 250) -> run.Decoder:
    """The model after so many steps; with `keep` it goes on from the state there, if there is one, and leaves its own."""
    training, began = Training(), time.monotonic()
    if keep is not None and keep.exists():
        training.resume(keep, steps)
    first = training.done
    while training.done < steps:
        training.step(steps)
        if training.done % 50 == 0:
            speed = (training.done - first) * TOKENS / (time.monotonic() - began)
            print(f"step {training.done:5} of {steps}  loss {training.mean:.4f}  {speed:,.0f} tokens/s", file=sys.stderr, flush=True)
        if keep is not None and training.done % every == 0:
            training.save(keep)
    return training.module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--keep", type=Path, help="a file for the state on the way, to go on from")
    parser.add_argument("--evaluate", action="store_true", help="measure the model that is there")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.evaluate:
        from tiny.measure import report

        page = readme(CONFIG, facts(args.out), report(args.out))
        (args.out / "README.md").write_text(page)
        print(page)
        return
    save(train(args.steps, args.keep), args.out, CONFIG, tokenizer(CONFIG["vocab_size"]))


def facts(folder: Path) -> dict[str, Any]:
    """What the README says of the training."""
    size = (folder / "model.safetensors").stat().st_size
    words = {x.lower() for text in islice(texts(SEED), 3000) for x in re.findall("[A-Za-z]+", text)}
    return {"steps": STEPS, "tokens": TOKENS, "easy": EASY, "seed": SEED, "bytes": size, "words": round(len(words), -1)}


if __name__ == "__main__":
    main()
