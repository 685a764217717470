"""`Talk`: a conversation that goes on; what was read of it is not read again."""

from __future__ import annotations

from ..core.errors import LlamathError
from ..tokenizers.chat_formats import ChatFormat
from ..tokenizers.chat_prompt import ChatMessage
from .batch import PrefixCache
from .generate import Generation, GenerationLimits
from .sampling import Sampling
from .session import Llama


class ChatSession:
    """Turns so far, the system's first. `ask` gives an answer piece by piece, `heard` notes what was said of it."""

    def __init__(self, llama: Llama, form: ChatFormat, system: str = "") -> None:
        self.llama, self.chat_format = llama, form
        self.turns: list[ChatMessage] = []
        self._prefix: PrefixCache | None = None
        self._answer: Generation | None = None
        self.set_system_prompt(system)

    def set_system_prompt(self, system: str) -> None:
        """Begin anew, with this for the system's text; none if it is empty."""
        self.turns = [ChatMessage("system", system)] if system else []

    @property
    def system_prompt(self) -> str:
        """The system's text."""
        return self.turns[0].content if self.turns and self.turns[0].role == "system" else ""

    def send(self, text: str, sampling: Sampling | None, limits: GenerationLimits) -> Generation:
        """The answer to one more turn of the user, which counts only if it can be read."""
        turns = [*self.turns, ChatMessage("user", text)]
        answer = self.llama.reply(turns, self.chat_format, sampling, limits)
        if self._prefix is not None:
            answer.resume(self._prefix)
        self.turns, self._answer = turns, answer
        return answer

    def commit(self, text: str) -> None:
        """The answer, as far as it went."""
        self.turns.append(ChatMessage("assistant", text))
        if self._answer is not None:
            self._prefix, self._answer = self._answer.prefix_cache, None

    def rollback(self) -> None:
        """Take back a question that was not answered."""
        if self.turns and self.turns[-1].role == "user":
            self.turns.pop()
        self._prefix = self._answer = None

    def regenerate(self) -> str:
        """Take back the last question and its answer, to ask it again."""
        if len(self.turns) < 2 or self.turns[-1].role != "assistant":
            raise LlamathError("there is no answer yet to be given again")
        asked = self.turns[-2].content
        self.turns = self.turns[:-2]
        return asked
