"""Generate notes with llama.cpp in this process.

Invariants:
- An answer depends on the prompt alone.
- The instructions, each piece of the shared part, the rest and the request are evaluated separately, in this order.
- A common prefix is reused by resetting the state to its end, so the batches are the same with and without reuse.
- Document text never becomes a control token.
- No call is made that would make llama.cpp abort the process.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from enrich.llama_library import last_words, quiet_library
from enrich.notes.prompts import Prompt
from enrich.notes.writer import CONTEXT, Completion, LLMFailure, PromptTooLong, document_tokens, limit
from parsers.errors import ModelError

# Stand-ins for the messages while the model's chat template is rendered; private-use characters, so no template or
# tokenizer knows them.
_SYSTEM: Final = "\ue000system\ue001"
_USER: Final = "\ue000user\ue001"
# What a template may ask for beyond the messages: no reasoning, and no date of today in the prompt.
_TEMPLATE_VARIABLES: Final[Mapping[str, Any]] = {"enable_thinking": False, "date_string": "26 Jul 2024"}
_TITLE: Final = 128  # tokens, more than a title and the marks around a document have
_REMEMBERED: Final = 256  # texts whose tokens are kept
_PIECE: Final = 512  # bytes of one token's text, more than any vocabulary has

_loading = threading.Lock()


class LlamaRuntime:
    """LLM in a GGUF file, run at temperature 0 and loaded with the first prompt.

    Safe to call from several threads; the calls run one at a time. For more speed, use one instance per thread.

    Args:
        path: the GGUF.
        n_ctx: tokens of context, the answer included; capped at the context that the model was trained with.
        document: maximum code points of a document in a prompt. The context grows by the tokens for it; that is not
            part of the fingerprint, since a prompt that fits gets the same answer in any context.
        threads: CPU threads.
        gpu_layers: layers to put on a GPU, -1 for all; only with a llama.cpp built for one.
        weights: SHA-256 of the file if known; else computed from the file.

    Raises:
        ModelError: when there is no such file.
    """

    def __init__(
        self,
        path: Path,
        *,
        n_ctx: int = CONTEXT,
        document: int = 0,
        threads: int = 2,
        gpu_layers: int = 0,
        weights: str = "",
    ) -> None:
        if not path.is_file():
            raise ModelError(
                f"no model file at {path}", "Name a GGUF that is there, or fetch one with `gristmill models`"
            )
        self._path = path
        self._n_ctx = n_ctx
        self._room = n_ctx + (document_tokens(document) + _TITLE if document else 0)
        self._threads = threads
        self._gpu_layers = gpu_layers
        self._weights = weights
        self._lock = threading.Lock()
        self._llama: Any = None
        self._controls: tuple[list[int], list[int], list[int]] = ([], [], [])
        self._evaluated: list[list[int]] = []
        # Asked of each prompt several times, of a document with each of its chunks.
        self._plain = lru_cache(maxsize=_REMEMBERED)(self._tokenized)
        self._limit = self._room

    @property
    def fingerprint(self) -> str:
        """Digest of the weights and all else that decides the output besides the prompt."""
        if not self._weights:
            with self._path.open("rb") as file:
                self._weights = hashlib.file_digest(file, "sha256").hexdigest()
        return f"gguf:{self._weights}:n_ctx={self._n_ctx}:greedy:{_digest_of(_TEMPLATE_VARIABLES)}"

    @property
    def provenance(self) -> Mapping[str, str]:
        """Library, version and file."""
        import llama_cpp

        return {"runtime": "llama-cpp-python", "version": llama_cpp.__version__, "file": self._path.name}

    @property
    def parallel(self) -> int:
        """One: decoded together, prompts change each other's last digits, so notes would depend on their order."""
        return 1

    def cancel(self) -> None:
        """Nothing: nobody else waits for it."""

    def room(self, prompt: Prompt) -> int:
        """Return the tokens left for an answer after this prompt."""
        with self._lock:
            self._load()
            return self._limit_of(prompt) - sum(map(len, self._stages(prompt)))

    def generate(self, prompt: Prompt, max_tokens: int) -> Completion:
        """Return the answer to a prompt, up to the end of its first line with text.

        Raises:
            PromptTooLong: when the prompt and its answer do not fit.
            LLMFailure: when llama.cpp fails on it.
        """
        with self._lock:
            self._load()
            stages = self._stages(prompt)
            length = sum(map(len, stages))
            if length + max_tokens > (most := self._limit_of(prompt)):
                raise PromptTooLong(f"a prompt of {length} and an answer of {max_tokens} tokens do not fit {most}")
            try:
                self._evaluate(stages)
                return self._answer(max_tokens)
            except (RuntimeError, ValueError, AssertionError) as error:
                self._evaluated = []
                raise LLMFailure(f"llama.cpp failed: {error}{last_words()}") from error

    def close(self) -> None:
        """Free the model's memory; the next prompt loads it again."""
        with self._lock:
            if self._llama is not None:
                self._llama.close()
                self._llama, self._evaluated = None, []

    def _limit_of(self, prompt: Prompt) -> int:
        return min(self._limit, limit(prompt, self._n_ctx))

    def _load(self) -> None:
        if self._llama is not None:
            return
        with _loading:
            llama_cpp = quiet_library()
            try:
                self._llama = llama_cpp.Llama(
                    str(self._path),
                    n_ctx=self._room,
                    n_batch=min(self._n_ctx, 512),
                    n_threads=self._threads,
                    n_threads_batch=self._threads,
                    n_gpu_layers=self._gpu_layers,
                    swa_full=True,  # a sliding-window cache cannot be set back otherwise
                    verbose=False,
                )
            except (RuntimeError, ValueError) as error:
                raise ModelError(
                    f"llama.cpp cannot load {self._path}: {error}{last_words()}",
                    "Check the file with `gristmill models`",
                ) from error
        # llama.cpp rounds its context up, and llama_cpp's own buffers do not follow.
        self._limit = min(self._room, self._llama.n_ctx(), _trained_context(self._llama.metadata) or self._room)
        self._controls = self._control_tokens()

    def _control_tokens(self) -> tuple[list[int], list[int], list[int]]:
        """Return tokens before the instructions, between them and the message, and behind the message.

        The model's own chat template decides them; a model without one gets line ends.
        """
        before, between, behind = _chat_frame(self._llama)
        bos = self._special(self._llama.token_bos())
        add_bos = not (bos and before.startswith(bos))
        return (
            self._llama.tokenize(before.encode(), add_bos=add_bos, special=True),
            self._llama.tokenize(between.encode(), add_bos=False, special=True),
            self._llama.tokenize(behind.encode(), add_bos=False, special=True),
        )

    def _special(self, token: int) -> str:
        return _special_text(self._llama, token)

    def _stages(self, prompt: Prompt) -> list[list[int]]:
        """Return the prompt's tokens: instructions, shared pieces, rest, question. Only ours can be control tokens."""
        before, between, behind = self._controls
        return [
            [*before, *self._plain(prompt.instructions), *between],
            *map(self._plain, prompt.shared),
            self._plain(prompt.rest),
            [*self._plain(prompt.ask), *behind],
        ]

    def _tokenized(self, text: str) -> list[int]:
        data = text.encode("utf-8", "replace")
        tokens: list[int] = self._llama.tokenize(data, add_bos=False, special=False) if data else []
        return tokens

    def _evaluate(self, stages: Sequence[list[int]]) -> None:
        """Evaluate the prompt stage by stage; the last stage is never reused."""
        llama = self._llama
        kept = 0
        if not (llama._is_recurrent or llama._is_hybrid):  # their state cannot be set back
            while kept < min(len(self._evaluated), len(stages) - 1) and self._evaluated[kept] == stages[kept]:
                kept += 1
        stay = list(stages[:kept])
        self._evaluated = []
        if not kept:
            llama.reset()
        llama.n_tokens = sum(map(len, stay))
        for stage in stages[kept:]:
            if stage:
                llama.eval(stage)
        self._evaluated = list(stages[:-1])

    def _answer(self, max_tokens: int) -> Completion:
        import llama_cpp

        llama = self._llama
        vocabulary = llama_cpp.llama_model_get_vocab(llama.model)
        written = b""
        for _ in range(max_tokens):
            token = llama.sample(temp=0.0)
            if llama_cpp.llama_vocab_is_eog(vocabulary, token):
                return Completion(_text(written))
            written += _piece(vocabulary, token)
            if b"\n" in written.lstrip():
                return Completion(_text(written))
            llama.eval([token])
        return Completion(_text(written), finished=False)


def _chat_frame(llama: Any) -> tuple[str, str, str]:
    """Return the text of the chat template before the instructions, before the message and after it."""
    from jinja2 import TemplateError
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    source = llama.metadata.get("tokenizer.chat_template")
    if not source:
        return "", "\n\n", "\n"
    formatter = Jinja2ChatFormatter(
        source, eos_token=_special_text(llama, llama.token_eos()), bos_token=_special_text(llama, llama.token_bos())
    )
    both: list[Any] = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _USER}]
    joined: list[Any] = [
        {"role": "user", "content": f"{_SYSTEM}\n\n{_USER}"}
    ]  # for templates that know no system message
    for messages in (both, joined):
        try:
            text = formatter(messages=messages, **_TEMPLATE_VARIABLES).prompt
        except (TemplateError, ValueError):
            continue
        before, found, behind = text.partition(_SYSTEM)
        between, found_too, behind = behind.partition(_USER)
        if found and found_too:
            return before, between, behind
    raise ModelError("the model's chat template takes no message from a user", "Use an instructed model")


def _special_text(llama: Any, token: int) -> str:
    import llama_cpp

    if token < 0:
        return ""
    text = llama_cpp.llama_vocab_get_text(llama_cpp.llama_model_get_vocab(llama.model), token)
    return text.decode("utf-8", "replace") if text else ""


def _piece(vocabulary: Any, token: int) -> bytes:
    """Return a token's text; empty for a control token."""
    import llama_cpp

    buffer = ctypes.create_string_buffer(_PIECE)
    size = llama_cpp.llama_token_to_piece(vocabulary, token, buffer, _PIECE, 0, False)
    return buffer.raw[: max(0, size)]


def _trained_context(metadata: Mapping[str, str]) -> int:
    """Return the context in tokens that the model was trained with; 0 if its file has no number."""
    length = metadata.get(f"{metadata.get('general.architecture', '')}.context_length", "")
    return int(length) if length.isdigit() else 0


def _text(written: bytes) -> str:
    return written.decode("utf-8", "ignore")


def _digest_of(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:8]
