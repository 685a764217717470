"""Write tests/golden/ggml_quantized.json: sha256 of blocks that llama.cpp's reference quantizers
write for random numbers.

The library is libggml-base of an installed llama-cpp-python (`pip install llama-cpp-python`, which
compiles it):

    python tools/quantize_with_ggml.py SITE_PACKAGES/llama_cpp/lib/libggml-base.so
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from llamath.checkpoint.formats.dtypes import DTYPES  # noqa: E402
from llamath.conversion.quantize_blocks import QUANTIZERS  # noqa: E402
from support.quantizer_inputs import quantizer_inputs  # noqa: E402


def quantize(library: ctypes.CDLL, values: np.ndarray, kind: str) -> bytes:
    """Return the blocks that ggml writes."""
    name = kind.lower().replace("_k", "_K")
    block = DTYPES[kind]
    out = np.zeros(values.size // block.block * block.bytes, np.uint8)
    function = getattr(library, f"quantize_row_{name}_ref")
    function(
        values.ctypes.data_as(ctypes.c_void_p),
        out.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int64(values.size),
    )
    return out.tobytes()


def main() -> None:
    """Write the file."""
    library = ctypes.CDLL(sys.argv[1])
    digests = {
        kind: {
            name: hashlib.sha256(quantize(library, x, kind)).hexdigest()
            for name, x in quantizer_inputs()
        }
        for kind in QUANTIZERS
    }
    text = json.dumps({"library": Path(sys.argv[1]).resolve().name, "sha256": digests}, indent=1)
    (ROOT / "tests" / "golden" / "ggml_quantized.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
