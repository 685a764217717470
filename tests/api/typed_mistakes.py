"""Calls that are wrong for a type checker: `make lint` fails where an error is not found, since its `type: ignore` is unused then."""

import llamath
from llamath.native import native_operations as ops

model = llamath.load("gpt2")
llamath.memory(model, contxt=8192)  # type: ignore
llamath.fit(model, on=3)  # type: ignore
llamath.stored_names(model, names="mlx")  # type: ignore
llamath.plan(model)  # type: ignore
family = model.family  # type: ignore
cache = llamath.memory({"a": 1}).kv_cache  # type: ignore
x = ops.View()
rope = ops.Rope(path="", out=x, x=x, rope=ops.RopeNumber(0), interleaved=True)
ops.Rope(path="", out=x, x=x, rope=ops.RopeNumber(0), interleaved=True, window=4)  # type: ignore
ops.Rope(path="", out=x, x=x, rope=ops.WeightNumber(0), interleaved=True)  # type: ignore
ops.Rope(path="", out=x, x=x, rope=ops.RopeNumber(0))  # type: ignore
window = rope.window  # type: ignore
