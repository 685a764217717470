"""A `Tokenizer`: text to ids and back, whatever kind of file it came from, with the ids that end a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..core.errors import LlamathError, safe

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine


class Tokenizer:
    """One vocabulary. *Marks* are its special tokens (`<s>`, `<|eot_id|>`): in plain text they are text unless asked for."""

    def __init__(self, engine: Engine, source: str, bos_id: int | None = None, stop_ids: Iterable[int] = ()) -> None:
        self.engine, self.source, self.bos_id = engine, source, bos_id
        self.stop_ids = frozenset(stop_ids)  # ids after which a text is over
        engine.no_truncation()
        engine.no_padding()

    @property
    def vocab_size(self) -> int:
        """How many ids there are: one more than the largest."""
        return 1 + max(self.engine.get_vocab(with_added_tokens=True).values(), default=-1)

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special_tokens: bool = False) -> list[int]:
        """The ids of a text; `start` adds what the tokenizer puts around a whole text, `marks` reads special tokens in it as such."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            found = f"{safe(text[max(0, error.start - 8) : error.start + 1])!r} at character {error.start:,}"
            raise LlamathError(f"the text is not UTF-8: expected characters, found {found}") from None
        self.engine.encode_special_tokens = not parse_special_tokens
        with wrap_engine_errors(self.source):
            return list(self.engine.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int], *, keep_special_tokens: bool = False) -> str:
        """The text of some ids, special tokens left out unless asked for."""
        with wrap_engine_errors(self.source):
            return str(self.engine.decode(list(ids), skip_special_tokens=not keep_special_tokens))

    def decode_stream(self, prefix: Sequence[int] = (), *, keep_special_tokens: bool = False) -> Callable[[int], str]:
        """A function from the next id to the text that it completes, none while a character is unfinished."""
        from tokenizers.decoders import DecodeStream

        stream = DecodeStream(ids=list(prefix), skip_special_tokens=not keep_special_tokens)

        def following(token: int) -> str:
            with wrap_engine_errors(self.source):
                return stream.step(self.engine, token) or ""

        return following

    def token_id(self, text: str) -> int | None:
        """The id of a special token."""
        found = self.engine.token_to_id(text)
        return None if found is None else int(found)


@contextmanager
def wrap_engine_errors(source: str) -> Iterator[None]:
    """Whatever the engine raises over a stranger's tokenizer, a panic included, as an error of ours."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError, LlamathError):
        raise
    except BaseException as error:
        reason = safe(str(error).strip() or type(error).__name__)
        raise LlamathError(
            f"{safe(source)}: the tokenizer cannot be used: {reason}", hint="is the file whole, and of this model?"
        ) from None
