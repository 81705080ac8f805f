"""An LLM behind any OpenAI-compatible server (llama-server, vLLM).

Invariants:
- The same prompt as in process, sent at temperature 0.
- Where the server stands decides nothing about a note.
- Nothing in a prompt reads as a control token, since a server looks for them in the text: what looks like one is sent
  with a space in it.

Two kinds of requests need no client library for OpenAI: it would bring retries of its own, with chance in their pauses.
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
UNSTATED: Final = 4096  # tokens of context of a server that does not say, where the settings do not either
FRAME: Final = 64  # tokens, more than a chat template puts around two messages
_SPARE: Final = 512  # tokens of room from which on nobody counts exactly
BYTES: Final = 2  # of UTF-8, at least, in a token of running text; where the server does not count for us

# `<` before what may be a control token up to `>`, or before a bar; `[` before a word in capitals. Our own marks stay.
_CONTROL: Final = re.compile(
    rf"(?:<(?!/?(?:{'|'.join(MARKS)})>)(?=[|｜]|[^\s<>]{{1,60}}>)|\[(?=/?[A-Z][A-Z_]{{1,40}}\]|control_\d))"
)
_NARROWER: Final = frozenset({400, 413, 422, 500})  # with words about the context
_TOO_LONG: Final = re.compile(
    r"context[ _](?:length|size|window)|exceed\w*_context|(?:prompt|input)\b.{0,40}\btoo (?:long|large)", re.I
)
_NO_SYSTEM: Final = re.compile(r"system\W+role|role\W+system|roles must alternate", re.I)


class ServerRuntime:
    """LLM behind an OpenAI-compatible server; safe to call from several threads.

    Nothing is sent before the first use.

    Args:
        url: the server's address, such as ``http://127.0.0.1:8080/v1``.
        model: the name under which it knows the model; empty for the only one it has.
        key: sent as a bearer token; never logged, no part of anything remembered.
        parallel: requests at a time.
        context: tokens of context of the model; 0 for what the server says.
        needed: tokens of context that prompts may need; more of it on the server's side changes no note.
        timeout: seconds that an answer may take.
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
        """Requests at a time."""
        return self._parallel

    @property
    def served(self) -> _Served:
        """What the server says of the model.

        Raises:
            ModelError: when it does not answer, refuses the key or does not have the model.
        """
        with self._lock:
            if self._served is None:
                self._served = self._ask_what_is_served()
            return self._served

    @property
    def fingerprint(self) -> str:
        """The model as the server describes it, and what decides the output besides; not where the server stands."""
        served = self.served
        short = f":context={served.context}" if served.context < self._needed else ""
        return f"server:{_without_folder(served.name)}:{served.digest}:n_ctx={CONTEXT}:greedy:seed={SEED}{short}"

    @property
    def provenance(self) -> Mapping[str, str]:
        """What the answers come from."""
        return {"runtime": "openai-compatible", "url": self._url, "model": self.served.name}

    def room(self, prompt: Prompt) -> int:
        """Return tokens left for an answer behind this prompt, or fewer: counted exactly only where that may matter."""
        most = min(limit(prompt, CONTEXT), self.served.context) - FRAME
        text = as_sent(prompt.instructions) + as_sent(prompt.message)
        size = len(text.encode())
        if most - size >= _SPARE:  # no token is shorter than a byte
            return most - size
        counted = self._counted(text) if self._counts_tokens else None
        return most - (counted if counted is not None else -(-size // BYTES))

    def generate(self, prompt: Prompt, max_tokens: int) -> Completion:
        """Return the answer to a prompt, up to the first line end behind some text.

        Raises:
            PromptTooLong: when the server finds the prompt too long for its model.
            LLMFailure: when it fails at this prompt, however often it is asked.
            ModelError: when it refuses the key or does not know the model.
        """
        completion = self._answer(prompt, max_tokens, stop=["\n"])
        if completion.finished and not completion.text.strip():  # it began with a line end
            completion = self._answer(prompt, max_tokens, stop=[])
        head, end, _ = completion.text.lstrip().partition("\n")
        return Completion(head, finished=bool(end) or completion.finished)

    def cancel(self) -> None:
        """Break off all requests for good; the threads that wait for them get an error."""
        self._client.cancel()

    def close(self) -> None:
        """Close the connections; the next use opens them again."""
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
            # What it keeps of the prompt before moves the last digits, so an answer would depend on the order of the
            # prompts. It is worth that for a document alone.
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
        """Return tokens of a text as the server counts them; None where it does not."""
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
    """A model as its server describes it.

    Attributes:
        name: under which it is asked for.
        digest: of what the server says of its weights; no path of a folder, no context length, no date.
        context: tokens.
        owner: what kind of server it is, ``llamacpp`` or ``vllm`` for one.
    """

    name: str
    digest: str
    context: int
    owner: str


def _error(refused: Refused, url: str, model: str) -> LLMFailure | ModelError:
    """Return the error that a refusal means."""
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
    """Return what decides a note at a server: file and size of the weights, and the chat template."""
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
    """Return a model's name; of a file's path the base name, since moving the file renews nothing."""
    return PurePath(name).name if name.startswith("/") else name


def as_sent(text: str) -> str:
    """Return a text as it is sent: in UTF-8, and with a space in what a server would take for a control token."""
    return _CONTROL.sub(lambda match: f"{match[0]} ", text.encode("utf-8", "replace").decode())
