"""An LLM behind any OpenAI-compatible server (llama-server, vLLM): the one module that talks to one.

Kept here: the same prompt as in process, sent at temperature 0; never more requests at a time than allowed, over all
threads; a request that may go well later is sent again after a pause that is the same every time, or the one that the
server names; where the server stands decides nothing about a note; and nothing in a prompt reads as a control token,
since a server looks for them in the text: what looks like one is sent with a space in it.

Plain requests by httpx: a client library for OpenAI would bring its own retries, with chance in their pauses, and its
own types for two requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from email.utils import parsedate_to_datetime
from pathlib import PurePath
from time import time
from typing import Any, Final, TypeVar

import httpx
import msgspec

from enrich.context import MARKS, Prompt
from enrich.llm import CONTEXT, Completion, LLMFailure, PromptTooLong, limit
from parsers.errors import ModelError

SEED: Final = 0
TRIES: Final = 5  # of one request
LONGEST: Final = 60.0  # seconds of a pause; a server that asks for a longer one has failed
UNSTATED: Final = 4096  # tokens of context of a server that does not say, where the settings do not either
FRAME: Final = 64  # tokens, more than a chat template puts around two messages
SPARE: Final = 512  # tokens of room from which on nobody counts exactly
BYTES: Final = 2  # of UTF-8, at least, in a token of running text; where the server does not count for us
SLOW: Final = 2  # tries of a request that gets no answer in time
PASSING: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})

# `<` before what may be a control token up to `>`, or before a bar; `[` before a word in capitals. Our own marks stay.
_CONTROL: Final = re.compile(
    rf"(?:<(?!/?(?:{'|'.join(MARKS)})>)(?=[|｜]|[^\s<>]{{1,60}}>)|\[(?=/?[A-Z][A-Z_]{{1,40}}\]))"
)
_NARROWER: Final = frozenset({400, 413, 422, 500})  # with words about the context
_TOO_LONG: Final = re.compile(
    r"context[ _](?:length|size|window)|exceed\w*_context|(?:prompt|input)\b.{0,40}\btoo (?:long|large)", re.I
)
_NO_SYSTEM: Final = re.compile(r"system\W+role|role\W+system|roles must alternate", re.I)
_T = TypeVar("_T")


class ServerRuntime:
    """Asks an LLM behind an OpenAI-compatible server. Safe to call from several threads; nothing is sent before the
    first use.

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
        self._url = url.rstrip("/")
        self._root = self._url.removesuffix("/v1")
        self._model = model
        self._key = key
        self._parallel = parallel
        self._stated = context
        self._needed = needed
        self._timeout = timeout
        self._pause = pause
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx.AsyncClient | None = None
        self._end: Callable[[], Any] | None = None
        self._running: set[Any] = set()
        self._served: _Served | None = None
        self._broken_off = False
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
        """Tokens left for an answer behind this prompt, or fewer: counted exactly only where that may matter."""
        most = min(limit(prompt, CONTEXT), self.served.context) - FRAME
        text = _sent(prompt.instructions) + _sent(prompt.shared + prompt.rest + prompt.ask)
        size = len(text.encode())
        if most - size >= SPARE:  # no token is shorter than a byte
            return most - size
        counted = self._counted(text) if self._counts_tokens else None
        return most - (counted if counted is not None else -(-size // BYTES))

    def generate(self, prompt: Prompt, max_tokens: int) -> Completion:
        """The answer to a prompt, up to the first line end behind some text.

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
        self._broken_off = True
        for future in list(self._running):
            future.cancel()

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
        if self.served.takes_template_variables:
            body["chat_template_kwargs"] = {"enable_thinking": False}
        try:
            answer = self._request("POST", f"{self._url}/chat/completions", body)
        except _Refused as refused:
            if self._takes_system and _NO_SYSTEM.search(refused.said):
                self._takes_system = False
                return self._answer(prompt, max_tokens, stop)
            raise refused.as_error(self._url, self.served.name) from refused
        try:
            choice = answer["choices"][0]
            text, reason = choice["message"]["content"] or "", choice.get("finish_reason")
            return Completion(str(text), finished=reason != "length")
        except (KeyError, IndexError, TypeError) as error:
            raise LLMFailure(f"the LLM's server gave an answer without a message: {str(answer)[:200]}") from error

    def _messages(self, prompt: Prompt) -> list[dict[str, str]]:
        instructions, message = _sent(prompt.instructions), _sent(prompt.shared + prompt.rest + prompt.ask)
        if not self._takes_system:
            return [{"role": "user", "content": f"{instructions}\n\n{message}"}]
        return [{"role": "system", "content": instructions}, {"role": "user", "content": message}]

    def _counted(self, text: str) -> int | None:
        """Tokens of a text as the server counts them; None where it does not."""
        body = {"model": self.served.name, "content": text, "prompt": text, "add_special": False}
        try:
            answer = self._request("POST", f"{self._root}/tokenize", body)
            return len(answer["tokens"])
        except (_Refused, KeyError, TypeError):
            self._counts_tokens = False
            return None

    def _ask_what_is_served(self) -> _Served:
        try:
            listed = self._request("GET", f"{self._url}/models")
            models = {str(one["id"]): one for one in listed["data"]}
        except _Refused as refused:
            raise refused.as_error(self._url, self._model) from refused
        except LLMFailure as failure:
            raise ModelError(
                f"no LLM's server at {self._url}: {failure.message}", "Start it, or correct `llm_url`"
            ) from failure
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
        """What llama-server says of itself; nothing of another."""
        try:
            said = self._request("GET", f"{self._root}/props", tries=1)
        except (_Refused, LLMFailure):
            return {}
        return said if isinstance(said, dict) else {}

    def _request(self, method: str, url: str, body: Mapping[str, Any] | None = None, tries: int = TRIES) -> Any:
        """What a request gives, as decoded JSON.

        Raises:
            LLMFailure: when it goes wrong at every try.
            _Refused: when the server refuses it for good.
        """
        return self._run(self._tried(method, url, body, tries))

    async def _tried(self, method: str, url: str, body: Mapping[str, Any] | None, tries: int) -> Any:
        assert self._client is not None
        said, slow = "", 0
        for number in range(tries):
            pause = min(LONGEST, self._pause * 2**number)
            try:
                response = await self._client.request(method, url, json=body)
                if response.status_code < 400:
                    return response.json()
                said = f"{response.status_code} {_message(response)}"
                if response.status_code not in PASSING or _too_long(response.status_code, said):
                    raise _Refused(response.status_code, said)
                pause = _asked_pause(response, pause)
            except httpx.InvalidURL as error:
                raise ModelError(f"{url} is no address: {error}", "Correct `llm_url`") from error
            except httpx.HTTPError as error:
                said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                slow += isinstance(error, httpx.ReadTimeout)
            except ValueError:
                said = "an answer that is no JSON"
            if pause > LONGEST:
                raise LLMFailure(f"the LLM's server wants {pause:.0f} s of pause: {said}")
            if number + 1 == tries or slow == SLOW:
                raise LLMFailure(f"the LLM's server failed {number + 1} times: {said}")
            await asyncio.sleep(pause)
        raise AssertionError("a request is tried at least once")

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in this runtime's own loop, and break it off when the waiting thread is interrupted."""
        future = asyncio.run_coroutine_threadsafe(work, self._started())
        self._running.add(future)
        if self._broken_off:
            future.cancel()
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
        finally:
            self._running.discard(future)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
                limits = httpx.Limits(max_connections=self._parallel, max_keepalive_connections=self._parallel)
                timeout = httpx.Timeout(self._timeout, connect=min(10.0, self._timeout), pool=None)
                self._client = httpx.AsyncClient(headers=headers, limits=limits, timeout=timeout)
                self._loop = asyncio.new_event_loop()
                # A daemon: an interrupted build ends at once, whatever the server still does.
                thread = threading.Thread(target=self._loop.run_forever, name="llm-server", daemon=True)
                thread.start()
                self._end = weakref.finalize(self, _end, self._loop, thread, self._client)
            return self._loop

    def close(self) -> None:
        """Close the connections and end the loop; the next use opens them again."""
        with self._lock:
            if self._end is not None:
                self._end()
            self._loop = self._client = self._end = None


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, client: httpx.AsyncClient) -> None:
    """Close the connections and end the loop."""
    asyncio.run_coroutine_threadsafe(client.aclose(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


class _Served(msgspec.Struct, frozen=True):
    """A model as its server describes it.

    Attributes:
        name: under which it is asked for.
        digest: of what the server says of its weights; no path of a folder, no context length, no date.
        context: tokens.
        takes_template_variables: whether the server passes variables to the chat template.
    """

    name: str
    digest: str
    context: int
    takes_template_variables: bool


class _Refused(Exception):
    """A server's refusal, which the same request would meet again."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status
        self.said = said

    def as_error(self, url: str, model: str) -> LLMFailure | ModelError:
        """What it means."""
        if self.status in (401, 403):
            return ModelError(
                f"the LLM's server at {url} refuses the key: {self.said}",
                "Put the right one into GRISTMILL_LLM_KEY, in the environment alone",
            )
        if _too_long(self.status, self.said):
            return PromptTooLong(f"the LLM's server finds the prompt too long: {self.said}")
        if self.status == 404:
            return ModelError(
                f"the LLM's server at {url} does not know {model or 'this address'}: {self.said}",
                "Check `llm_url` and `llm_model`",
            )
        return LLMFailure(f"the LLM's server refuses the prompt: {self.said}")


def _too_long(status: int, said: str) -> bool:
    return status in _NARROWER and _TOO_LONG.search(said) is not None


def _described(name: str, model: Mapping[str, Any], properties: Mapping[str, Any], stated: int) -> _Served:
    """What of a server's words decides a note: the weights' file and size, and its chat template."""
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
        takes_template_variables=model.get("owned_by") in ("llamacpp", "vllm"),
    )


def _without_folder(name: str) -> str:
    """A model's name; of a file's path the base name, since moving the file renews nothing."""
    return PurePath(name).name if name.startswith("/") else name


def _sent(text: str) -> str:
    """A text as it is sent: in UTF-8, and with a space in what a server would take for a control token."""
    return _CONTROL.sub(lambda match: f"{match[0]} ", text.encode("utf-8", "replace").decode())


def _message(response: httpx.Response) -> str:
    """What a refusal says, in one line."""
    try:
        said = response.json()
        error = said.get("error", said.get("detail", said)) if isinstance(said, dict) else said
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    except ValueError:
        text = response.text
    return " ".join(text.split())[:300]


def _asked_pause(response: httpx.Response, otherwise: float) -> float:
    """Seconds to wait as Retry-After says, as a number or a date."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time())
    except ValueError:
        return otherwise
