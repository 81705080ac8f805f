"""Generate notes with an LLM behind an OpenAI-compatible server (llama-server, vLLM).

Invariants:
- The prompt is the same as in process and is sent at temperature 0.
- The server's address does not affect a note.
- No text in a prompt is read as a control token: servers parse these, so a space is inserted into each lookalike.

OpenAI's client library is not used: two kinds of requests do not need it, and its retries pause for random times.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

import msgspec

from enrich.notes.prompts import MARKS, Prompt
from enrich.notes.runtimes.http_client import PatientClient, Refused, Unanswered
from enrich.notes.writer import CONTEXT, Completion, LLMFailure, PromptTooLong, limit
from parsers.errors import ModelError

SEED: Final = 0
UNSTATED: Final = 4096  # tokens of context if neither the server nor the settings give a number
FRAME: Final = 64  # tokens; more than a chat template adds to two messages
_SPARE: Final = 512  # tokens of room; with more, no exact count is needed
BYTES: Final = 2  # minimum of UTF-8 per token of running text; used if the server does not count

# `<` before what may be a control token up to `>`, or before a bar; `[` before a word in capitals. Our own marks stay.
_CONTROL: Final = re.compile(
    rf"(?:<(?!/?(?:{'|'.join(MARKS)})>)(?=[|｜]|[^\s<>]{{1,60}}>)|\[(?=/?[A-Z][A-Z_]{{1,40}}\]|control_\d))"
)
_NARROWER: Final = frozenset({400, 413, 422, 500})  # too long if the body mentions the context
_TOO_LONG: Final = re.compile(
    r"context[ _](?:length|size|window)|exceed\w*_context|(?:prompt|input)\b.{0,40}\btoo (?:long|large)", re.I
)
_NO_SYSTEM: Final = re.compile(r"system\W+role|role\W+system|roles must alternate", re.I)


class ServerRuntime:
    """LLM behind an OpenAI-compatible server; safe to call from several threads.

    Sends nothing before the first use.

    Args:
        url: the server's address, such as ``http://127.0.0.1:8080/v1``.
        model: its name on the server; empty for the server's only model.
        key: sent as a bearer token; never logged, and part of no cache key.
        parallel: maximum of concurrent requests.
        context: the model's context in tokens; 0 for the server's number.
        needed: tokens of context that prompts may need; a larger context on the server changes no note.
        timeout: maximum seconds for an answer.
        pause: seconds before the second try; twice as long before each further one.
    """

    def __init__(
        self,
        url: str,
        model: str = "",
        *,
        key: str = "",
        parallel: int = 4,
        context: int = 0,
        needed: int = CONTEXT,
        timeout: float = 120.0,
        pause: float = 0.5,
    ) -> None:
        self._client: Final = PatientClient(key=key, parallel=parallel, timeout=timeout, pause=pause, final=_too_long)
        self._url = url.rstrip("/")
        self._root = self._url.removesuffix("/v1")
        self._model = model
        self._parallel = parallel
        self._stated = context
        self._needed = needed
        self._lock = threading.RLock()
        self._served: _Served | None = None
        self._counts_tokens = True
        self._takes_system = True

    @property
    def parallel(self) -> int:
        """Maximum of concurrent requests."""
        return self._parallel

    @property
    def served(self) -> _Served:
        """The server's description of the model.

        Raises:
            ModelError: when the server does not answer, rejects the key or lacks the model.
        """
        with self._lock:
            if self._served is None:
                self._served = self._ask_what_is_served()
            return self._served

    @property
    def fingerprint(self) -> str:
        """The server's description of the model and all else that decides the output; not the address."""
        served = self.served
        short = f":context={served.context}" if served.context < self._needed else ""
        return f"server:{_without_folder(served.name)}:{served.digest}:n_ctx={CONTEXT}:greedy:seed={SEED}{short}"

    @property
    def provenance(self) -> Mapping[str, str]:
        """Runtime, address and model of the answers."""
        return {"runtime": "openai-compatible", "url": self._url, "model": self.served.name}

    def room(self, prompt: Prompt) -> int:
        """Return a lower bound of the tokens left for an answer after this prompt.

        Counts exactly only near the limit.
        """
        most = min(limit(prompt, CONTEXT), self.served.context) - FRAME
        text = as_sent(prompt.instructions) + as_sent(prompt.message)
        size = len(text.encode())
        if most - size >= _SPARE:  # no token is shorter than a byte
            return most - size
        counted = self._counted(text) if self._counts_tokens else None
        return most - (counted if counted is not None else -(-size // BYTES))

    def generate(self, prompt: Prompt, max_tokens: int) -> Completion:
        """Return the answer to a prompt, up to the end of its first line with text.

        Raises:
            PromptTooLong: when the server reports that the prompt is too long for its model.
            LLMFailure: when it fails on this prompt after all retries.
            ModelError: when it rejects the key or does not know the model.
        """
        completion = self._answer(prompt, max_tokens, stop=["\n"])
        if completion.finished and not completion.text.strip():  # it began with a line end
            completion = self._answer(prompt, max_tokens, stop=[])
        head, end, _ = completion.text.lstrip().partition("\n")
        return Completion(head, finished=bool(end) or completion.finished)

    def cancel(self) -> None:
        """Cancel all requests for good; waiting threads get an error."""
        self._client.cancel()

    def close(self) -> None:
        """Close the connections; the next use reopens them."""
        self._client.close()

    def _answer(self, prompt: Prompt, max_tokens: int, stop: list[str]) -> Completion:
        body: dict[str, Any] = {
            "model": self.served.name,
            "messages": self._messages(prompt),
            "temperature": 0,
            "seed": SEED,
            "max_tokens": max_tokens,
        }
        if stop:
            body["stop"] = stop
        if self.served.owner in ("llamacpp", "vllm"):
            body["chat_template_kwargs"] = {"enable_thinking": False}
        if self.served.owner == "llamacpp":
            # The cached prefix of the previous prompt changes the last digits, so an answer depends on the order of the
            # prompts. Only a whole document in the prompt is worth that.
            body["cache_prompt"] = prompt.with_document
        try:
            answer = self._client.request("POST", f"{self._url}/chat/completions", body)
        except Unanswered as error:
            raise LLMFailure(f"the LLM's server: {error}") from error
        except Refused as refused:
            if self._takes_system and _NO_SYSTEM.search(refused.said):
                self._takes_system = False
                return self._answer(prompt, max_tokens, stop)
            raise _error(refused, self._url, self.served.name) from refused
        try:
            choice = answer["choices"][0]
            text, reason = choice["message"]["content"] or "", choice.get("finish_reason")
            return Completion(str(text), finished=reason != "length")
        except (KeyError, IndexError, TypeError) as error:
            raise LLMFailure(f"the LLM's server gave an answer without a message: {str(answer)[:200]}") from error

    def _messages(self, prompt: Prompt) -> list[dict[str, str]]:
        instructions, message = as_sent(prompt.instructions), as_sent(prompt.message)
        if not self._takes_system:
            return [{"role": "user", "content": f"{instructions}\n\n{message}"}]
        return [{"role": "system", "content": instructions}, {"role": "user", "content": message}]

    def _counted(self, text: str) -> int | None:
        """Return the server's token count of a text; None if the server does not count."""
        body = {"model": self.served.name, "content": text, "prompt": text, "add_special": False}
        try:
            return len(self._client.request("POST", f"{self._root}/tokenize", body, tries=1)["tokens"])
        except (Refused, Unanswered, KeyError, TypeError):
            self._counts_tokens = False
            return None

    def _ask_what_is_served(self) -> _Served:
        try:
            listed = self._client.request("GET", f"{self._url}/models")
            models = {str(one["id"]): one for one in listed["data"]}
        except Refused as refused:
            error = _error(refused, self._url, self._model)
            raise ModelError(error.message, error.remedy or "Correct `llm_url`") from refused
        except Unanswered as error:
            raise ModelError(f"no LLM's server at {self._url}: {error}", "Start it, or correct `llm_url`") from error
        except (KeyError, TypeError) as error:
            raise ModelError(
                f"what answers at {self._url} lists no models: it is no OpenAI-compatible server",
                "Correct `llm_url`; it often ends with /v1",
            ) from error
        name = self._model or (next(iter(models)) if len(models) == 1 else "")
        found = models.get(name) or next((one for one in models.values() if name in one.get("aliases", ())), None)
        if not name or found is None:
            raise ModelError(
                f"the LLM's server at {self._url} has no model {name!r}; it has {', '.join(sorted(models)) or 'none'}",
                "Name one of them with `llm_model`",
            )
        return _described(str(found["id"]), found, self._properties(), self._stated)

    def _properties(self) -> Mapping[str, Any]:
        """Return llama-server's description of itself; empty for another server."""
        try:
            said = self._client.request("GET", f"{self._root}/props", tries=1)
        except (Refused, Unanswered):
            return {}
        return said if isinstance(said, dict) else {}


class _Served(msgspec.Struct, frozen=True):
    """A server's description of a model.

    Attributes:
        name: the name to send in requests.
        digest: of the description of the weights, without folder, context length and date.
        context: in tokens.
        owner: the kind of server, such as ``llamacpp`` or ``vllm``.
    """

    name: str
    digest: str
    context: int
    owner: str


def _error(refused: Refused, url: str, model: str) -> LLMFailure | ModelError:
    """Return the error for an HTTP refusal."""
    if refused.status in (401, 403):
        return ModelError(
            f"the LLM's server at {url} refuses the key: {refused.said}",
            "Put the right one into GRISTMILL_LLM_KEY, in the environment alone",
        )
    if _too_long(refused.status, refused.said):
        return PromptTooLong(f"the LLM's server finds the prompt too long: {refused.said}")
    if refused.status == 404:
        return ModelError(
            f"the LLM's server at {url} does not know {model or 'this address'}: {refused.said}",
            "Check `llm_url` and `llm_model`",
        )
    return LLMFailure(f"the LLM's server refuses the prompt: {refused.said}")


def _too_long(status: int, said: str) -> bool:
    return status in _NARROWER and _TOO_LONG.search(said) is not None


def _described(name: str, model: Mapping[str, Any], properties: Mapping[str, Any], stated: int) -> _Served:
    """Return the properties of a served model that decide a note: weights and chat template."""
    meta = model.get("meta") or {}
    own = {
        "file": PurePath(str(properties.get("model_path", ""))).name,
        "template": properties.get("chat_template", ""),
        "root": _without_folder(str(model.get("root") or "")),
        **{field: meta.get(field) for field in ("n_params", "size", "n_vocab", "n_embd", "ftype")},
    }
    spoken = (properties.get("default_generation_settings") or {}).get("n_ctx")
    context = stated or spoken or model.get("max_model_len") or meta.get("n_ctx") or UNSTATED
    return _Served(
        name=name,
        digest=hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:16],
        context=int(context),
        owner=str(model.get("owned_by") or ""),
    )


def _without_folder(name: str) -> str:
    """Return a model's name; for a path the base name, so that moving the file changes no key."""
    return PurePath(name).name if name.startswith("/") else name


def as_sent(text: str) -> str:
    """Return a text in UTF-8 with a space in everything that looks like a control token."""
    return _CONTROL.sub(lambda match: f"{match[0]} ", text.encode("utf-8", "replace").decode())
