"""Train the embedded model: a small Llama trained on stories of a small world, written to
`src/llamath/embedded` in Hugging Face's format.

    python tools/train_tiny.py             # train and write it
    python tools/train_tiny.py --evaluate  # measure the existing model and write its README

The modules are `llamath.torch`'s, the loop is PyTorch's, the texts are made by `tools/tiny`. With
the same seed, versions, machine and number of threads the weights are reproduced bit for bit;
another processor may round differently.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import llamath
from llamath.torch import Decoder, build, initialize
from tiny.readme import readme
from tiny.save import save
from tiny.stories import PLOTS
from tiny.texts import batches, padded, texts, tokenizer
from tokenizers import Tokenizer

FOLDER = Path(__file__).parents[1] / "src" / "llamath" / "embedded"
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 896,
    "hidden_size": 128, "intermediate_size": 320,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False, "bos_token_id": 0, "eos_token_id": [1, 3], "torch_dtype": "bfloat16",
}  # fmt: skip
STEPS, TOKENS, RATE, WARM, STD, SEED = 4500, 2048, 3e-3, 100, 0.08, 1


def rate(step: int, steps: int) -> float:
    """Learning-rate factor: linear warmup, constant, and linear decay to zero in the last
    quarter."""
    return RATE * min(1.0, (step + 1) / WARM, (steps - step) / (steps / 4))


def optimizers(module: torch.nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers (Jordan et al. 2024), AdamW for the embedding and the
    norms."""
    matrices = [
        x for name, x in module.named_parameters() if x.dim() > 1 and name.startswith("layers.")
    ]
    others = [
        x for name, x in module.named_parameters() if x.dim() < 2 or not name.startswith("layers.")
    ]
    return [
        torch.optim.Muon(
            matrices, lr=RATE, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=RATE, weight_decay=0.0, betas=(0.9, 0.95), fused=True),
    ]


class Training:
    """A training run that can be stopped and resumed."""

    def __init__(
        self,
        config: Mapping[str, Any],
        tokenizer: Tokenizer,
        tokens: int = TOKENS,
        seed: int = SEED,
    ) -> None:
        self.module = initialize(build(llamath.load(config)), seed, STD)
        self.optimizers, self.done, self.mean = optimizers(self.module), 0, 0.0
        self.batches = batches(texts(seed), tokenizer, tokens, config["max_position_embeddings"])

    def step(self, steps: int) -> float:
        """Train on one batch of a run of `steps` steps."""
        for group in (group for x in self.optimizers for group in x.param_groups):
            group["lr"] = rate(self.done, steps)
        ids, following = map(torch.tensor, padded(next(self.batches)))
        loss = cross_entropy(self.module(ids).flatten(0, 1), following.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        for x in self.optimizers:
            x.step()
            x.zero_grad()
        self.mean = loss.item() if not self.done else 0.98 * self.mean + 0.02 * loss.item()
        self.done += 1
        return loss.item()

    def save(self, path: Path) -> None:
        """The state to resume from."""
        states = [x.state_dict() for x in self.optimizers]
        torch.save(
            {
                "module": self.module.state_dict(),
                "optimizers": states,
                "done": self.done,
                "mean": self.mean,
            },
            path,
        )

    def resume(self, path: Path) -> None:
        """Resume from a state, with the texts that follow."""
        state = torch.load(path)
        self.module.load_state_dict(state["module"])
        for optimizer, optimizer_state in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(optimizer_state)
        self.done, self.mean = state["done"], state["mean"]
        for _ in range(self.done):
            next(self.batches)


def train(steps: int, keep: Path | None = None, every: int = 250) -> Decoder:
    """Train for a number of steps; with `keep`, resume from the state stored there, if any, and
    store it."""
    training, began = Training(CONFIG, tokenizer(CONFIG["vocab_size"])), time.monotonic()
    if keep is not None and keep.exists():
        training.resume(keep)
    first = training.done
    while training.done < steps:
        training.step(steps)
        if training.done % 50 == 0:
            speed = (training.done - first) * TOKENS / (time.monotonic() - began)
            print(
                f"step {training.done:5} of {steps}  loss {training.mean:.4f}  {speed:,.0f} "
                "tokens/s",
                file=sys.stderr,
                flush=True,
            )
        if keep is not None and training.done % every == 0:
            training.save(keep)
    return training.module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--keep", type=Path, help="checkpoint file, to resume training from")
    parser.add_argument("--evaluate", action="store_true", help="measure the existing model")
    parser.add_argument(
        "--note",
        default="",
        help="a sentence for the README: how long the training took, and on what",
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.evaluate:
        from tiny.measure import report

        page = readme(CONFIG, {**facts(args.out), "note": args.note}, report(args.out))
        (args.out / "README.md").write_text(page)
        print(page)
        return
    save(train(args.steps, args.keep), args.out, CONFIG, tokenizer(CONFIG["vocab_size"]))


def facts(folder: Path) -> dict[str, Any]:
    """The training figures in the README."""
    size = (folder / "model.safetensors").stat().st_size
    counts = Counter(
        x.lower() for text in islice(texts(SEED), 3000) for x in re.findall("[A-Za-z]+", text)
    )
    words = sum(x > 4 for x in counts.values())  # words without a meaning come once or twice
    return {
        "steps": STEPS,
        "tokens": TOKENS,
        "seed": SEED,
        "bytes": size,
        "words": round(words, -1),
        "plots": len(PLOTS),
    }


if __name__ == "__main__":
    main()
