"""The settings of a build and of a search, and the only place that reads the environment.

They come, later ones over earlier ones, from the defaults, ``gristmill.toml``, ``GRISTMILL_…`` variables and the
command line's flags. Secrets come from the environment alone and are no settings.
"""

from __future__ import annotations

import hashlib
import os
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from flows.patterns import key_begins, key_matches
from flows.settings_errors import describe, not_json, read_toml, unknown_variables
from parsers.errors import UsageError
from parsers.labels import RESERVED, is_reserved

SETTINGS_FILE = "gristmill.toml"


class LabelRule(BaseModel):
    """Labels for the documents whose key matches; beside those that a document carries itself.

    A rule has ``match``, a glob as :func:`flows.patterns.key_matches` reads it, in which ``[*]``, ``[?]`` and ``[[]``
    stand for the sign in the brackets; or ``prefix``, with which a key begins and in which no sign is special.
    """

    model_config = ConfigDict(extra="forbid")

    match: str = ""
    prefix: str = ""
    labels: list[str]

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, labels: list[str]) -> list[str]:
        found = [" ".join(label.split()) for label in labels]
        for label in found:
            if not label or is_reserved(label):
                raise ValueError(f"{label!r} is no label; it must not be blank or begin with {RESERVED}")
        return found

    @model_validator(mode="after")
    def _check_one_of_both(self) -> Self:
        if bool(self.match) == bool(self.prefix):
            raise ValueError("expected either match, a glob, or prefix, a literal beginning of keys")
        return self

    def applies(self, key: str) -> bool:
        """Return whether a document of this key gets the labels."""
        return key_begins(key, self.prefix) if self.prefix else key_matches(key, self.match)

    def __str__(self) -> str:
        return f"prefix = {self.prefix!r}" if self.prefix else f"match = {self.match!r}"


class Guards(BaseModel):
    """When a gate refuses to publish."""

    model_config = ConfigDict(extra="forbid")

    removed_count: int = Field(
        20, ge=0, description="documents that may be gone at once, unless they are more than `removed_most` of all"
    )
    removed_share: float = Field(
        0.2,
        ge=0,
        le=1,
        description="share of the documents that may be gone at once, where more than `removed_count` are",
    )
    removed_most: float = Field(
        0.5, ge=0, le=1, description="share that may be gone at once however few documents that are; never all of them"
    )
    failed_count: int = Field(20, ge=0, description="documents that may fail, whatever their share")
    failed_share: float = Field(0.5, ge=0, le=1, description="share of the documents that may fail")
    attempts: int = Field(5, ge=1, description="failed attempts after which a document waits until it changes")
    recall_k: int = Field(10, ge=1, le=200, description="depth at which the golden set's recall is compared")
    recall_p: float = Field(0.05, gt=0, le=1, description="chance of luck below which a drop of recall refuses")
    recall_drop: float = Field(0.1, gt=0, le=1, description="drop of recall that refuses, luck or not")
    swap_margin: float = Field(
        0.02, ge=0, le=1, description="drop of recall that a new model may have, at the lower end of the 95 % interval"
    )
    stale_share: float = Field(0.2, ge=0, le=1, description="share of golden questions that may no longer resolve")
    unknown_share: float = Field(0.2, ge=0, le=1, description="share of unknown tokens above which a document is named")


def default_cache() -> Path:
    """Return the folder of local copies, where the settings name none."""
    return platformdirs.user_cache_path("gristmill") / "indexes"


class Settings(BaseSettings):
    """Everything that can be set; unknown names are refused."""

    model_config = SettingsConfigDict(env_prefix="GRISTMILL_", env_nested_delimiter="__", extra="forbid")

    source: str | None = Field(None, description="the document store: a folder or s3://bucket/prefix")
    source_name: str = Field("default", description="the source's name; document ids come from it and the key")
    index: str = Field("index", description="where the index is kept: a folder or s3://bucket/prefix")
    reread_days: int = Field(
        30, ge=0, description="days in which builds read all documents again by turns, changed or not; 0 for never"
    )
    include: list[str] = Field(["*"], description="key patterns of which a document must match one; * also matches /")
    exclude: list[str] = Field([], description="key patterns of which it must match none")
    labels: list[LabelRule] = Field([], description="labels by key pattern or prefix")

    models_dir: Path = Field(
        default_factory=lambda: platformdirs.user_cache_path("gristmill") / "models",
        description="the model folder",
    )
    model_folders: list[Path] = Field([], description="folders to look for model files in before anything is fetched")
    model_files: list[Path] = Field([], description="further models.toml files")
    embedder: str = Field("all-MiniLM-L6-v2", description="name of the embedding model")
    ruler: str = Field("all-MiniLM-L6-v2", description="the model whose tokenizer and limit the chunker counts with")
    runtime: str | None = Field(
        None,
        description="what runs the embedder, such as onnx or llama.cpp:fp16; by default what doctor found the fastest",
    )
    device: str | None = Field(None, description="cpu, cuda, cuda:1 …; the GPU where there is one by default")
    batch_tokens: int | None = Field(None, ge=256, description="padded tokens the embedder takes at a time")
    vectors_for: list[str] = Field(["*"], description="key patterns of the documents that get vectors, not BM25 alone")

    notes: Literal["none", "extractive", "llm"] = Field("none", description="who writes the chunks' notes")
    llm: str = Field("Qwen2.5-Coder-0.5B-Instruct", description="the model that writes them, or the path of a GGUF")
    llm_threads: int | None = Field(None, ge=1, description="CPU threads of the LLM; all by default")
    llm_gpu_layers: int = Field(0, ge=-1, description="layers of the LLM on a GPU, -1 for all")
    llm_url: str | None = Field(
        None, description="an OpenAI-compatible server that runs the LLM instead; its key comes from GRISTMILL_LLM_KEY"
    )
    llm_model: str = Field("", description="the name under which that server knows the model; its only one by default")
    llm_concurrency: int = Field(4, ge=1, le=256, description="requests to that server at a time")
    llm_context: int | None = Field(
        None, ge=256, description="tokens of context of that server's model; by default what it says, or 4,096"
    )
    llm_timeout: float = Field(120.0, gt=0, description="seconds that an answer of that server may take")
    notes_limit: int | None = Field(None, ge=0, description="notes asked of the LLM in one build; the rest waits")
    note_neighbours: int = Field(200, ge=0, description="characters of text before and after a chunk in its prompt")
    note_window: Literal["section", "preceding", "document"] = Field(
        "section",
        description="what of its document stands in a chunk's prompt: its section's outline, all that precedes, or all",
    )
    note_document: int = Field(
        24_000, ge=1, description="characters up to which a document stands in the prompts, with the latter two"
    )
    note_reserve: int = Field(40, ge=0, description="tokens of a chunk's budget kept free for a note")
    overlap: int = Field(
        0, ge=0, le=128, description="tokens of whole sentences that a chunk repeats from the one before it"
    )
    path_share: float = Field(0.25, ge=0, le=0.5, description="share of the budget a printed heading path may take")

    rrf_k: int = Field(10, ge=1, description="what is added to each rank when the channels' ranks are fused")
    bm25_identifiers: float = Field(3.0, ge=0, description="what an identifier counts for BM25, a word counting 1")
    bm25_headings: float = Field(0.5, ge=0, description="what a word in titles or base name counts besides")
    bm25_notes: float = Field(0.0, ge=0, description="what a word in the note counts besides")
    bm25_phrases: float = Field(2.0, ge=0, description="what a quoted phrase counts besides its words")
    search_depth: int | None = Field(
        None, ge=1, description="hits asked of each channel; by default 100 or four times those wanted, if that is more"
    )
    always_filter: list[str] = Field(
        [], description="filters that hold in every search, such as label!=restricted; without one all is shown"
    )
    allow_unmatched_filters: bool = Field(
        False, description="search with a filter that names a label no document carries, or leaves out a key none has"
    )
    reranker: str | None = Field(None, description="the folder of a cross-encoder that reorders the best hits")
    rerank_depth: int = Field(50, ge=1, description="hits that the reranker reads")

    golden: Path | None = Field(None, description="a golden set that every build is measured by before it is published")

    orchestrator: Literal["auto", "prefect", "none"] = Field(
        "auto", description="who runs a build: Prefect where PREFECT_API_URL is set, always, or never"
    )
    timeout_seconds: float | None = Field(
        None, gt=0, description="seconds after which Prefect ends a build; nothing is published then"
    )
    receiver_host: str = Field("127.0.0.1", description="where `serve` listens for events; elsewhere only with a token")
    receiver_port: int = Field(8790, ge=1, le=65_535, description="the port of the receiver")
    sns_topics: list[str] = Field([], description="ARNs of the SNS topics whose events are accepted")
    inbox: Path | None = Field(None, description="file of received events; by default in the user's state folder")
    settle_seconds: float = Field(0.5, ge=0, description="seconds in which events join the build of the first one")
    nightly_at: str | None = Field(
        None, pattern=r"^([01]\d|2[0-3]):[0-5]\d$", description="local time of the full build of `serve`, such as 02:00"
    )
    busy_seconds: float = Field(
        3_600.0, ge=0, description="seconds for which a scheduled run waits for an index that another build holds"
    )
    nightly_hours: float = Field(26.0, gt=0, description="hours without a finished nightly build that count as a miss")
    notify_url: str | None = Field(
        None,
        repr=False,
        exclude=True,  # its path may be a secret: it stays out of the parameters that Prefect keeps
        description="where scheduled runs post notices; GRISTMILL_NOTIFY_TOKEN may hold a bearer token for it",
    )
    state_dir: Path = Field(
        default_factory=lambda: platformdirs.user_state_path("gristmill"),
        description="folder of what runs by itself keeps: outcomes of scheduled runs, and the inbox",
    )
    parse_workers: int | None = Field(
        None, ge=0, description="processes that parse at a time; by default one for each core, at most 8; 0 for none"
    )
    parse_seconds: float = Field(300.0, gt=0, description="processor time after which a document is given up")
    parse_bytes: int = Field(2_000_000_000, ge=100_000_000, description="memory that parsing a document may take")
    document_bytes: int = Field(200_000_000, ge=1, description="size above which a document is not read")
    batch_bytes: int = Field(8_000_000, ge=1, description="bytes of documents worked on at a time")
    batch_documents: int = Field(2_000, ge=1, description="documents worked on at a time")
    keep_revisions: int = Field(5, ge=1, description="revisions that can be gone back to, the published one among them")
    grace_hours: float = Field(
        24, ge=0, description="hours for which nothing is cleared away that a reader or a later build may still want"
    )
    cache_dir: Path = Field(
        default_factory=default_cache,
        description="local copies of the BM25 indexes that are kept on S3",
    )
    guards: Guards = Guards()

    @property
    def grace(self) -> timedelta:
        """How long nothing is cleared away that somebody may still want."""
        return timedelta(hours=self.grace_hours)

    @property
    def inbox_path(self) -> Path:
        """The file of received events."""
        if self.inbox is not None:
            return self.inbox.expanduser()
        own = self.index.rstrip("/") if "://" in self.index else str(Path(self.index).expanduser().absolute())
        digest = hashlib.sha256(own.encode()).hexdigest()[:16]
        return self.state_dir.expanduser() / digest / "inbox.sqlite"

    def embeds(self, key: str) -> bool:
        """Return whether a document gets vectors."""
        return "*" in self.vectors_for or any(key_matches(key, pattern) for pattern in self.vectors_for)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources of settings: flags, then variables, then the file."""
        return init_settings, env_settings


def load_settings(file: Path | None = None, **flags: Any) -> Settings:
    """Return the settings in force.

    Args:
        file: a settings file; ``gristmill.toml`` in the working folder by default, where there is one.
        flags: what the command line says; None for what it does not.

    Raises:
        UsageError: naming each setting that is wrong and where it was read.
    """
    path = file or Path(SETTINGS_FILE)
    if file is not None and not file.is_file():
        raise UsageError(f"settings file {file}: there is no such file", "Check the path given with --config.")
    from_file = read_toml(path)

    class FromFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], *sources: PydanticBaseSettingsSource, **named: Any
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            own = super().settings_customise_sources(settings_cls, *sources, **named)
            return *own, InitSettingsSource(settings_cls, init_kwargs=from_file)

    look = f"Look at {path}, at the GRISTMILL_ variables and at the flags."
    if unknown := list(unknown_variables(Settings, os.environ)):
        raise UsageError("; ".join(unknown), "Correct or unset them; infra/gristmill.example.toml lists the settings.")
    try:
        return FromFile(**{name: value for name, value in flags.items() if value is not None})
    except SettingsError as error:
        field = next((name for name in Settings.model_fields if f'field "{name}"' in str(error)), "")
        raise UsageError(not_json(os.environ, field), look) from error
    except ValidationError as error:
        wrong = "; ".join(describe(Settings, item) for item in error.errors())
        raise UsageError(f"settings: {wrong}", look) from error


def prepare_environment() -> None:
    """Have the libraries run quietly and send nothing anywhere. Call before they are imported.

    Variables that are already set stay. Prefect keeps its files beside the models' cache, not in the user's home.
    """
    quiet: dict[str, str] = {
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",  # the command line says what went wrong itself
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_CLI_COLORS": "false",
        "PREFECT_HOME": str(platformdirs.user_cache_path("gristmill") / "prefect"),
        "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",  # nothing of ours is kept there; and if, then no pickle
        "LANCE_LOG": "error",
    }
    for name, value in quiet.items():
        os.environ.setdefault(name, value)


def llm_key() -> str:
    """Return the key for the LLM's server; a secret, so it is no setting."""
    return os.environ.get("GRISTMILL_LLM_KEY", "")


def webhook_token() -> str:
    """Return the token that events must bear; a secret, so it is no setting."""
    return os.environ.get("GRISTMILL_TOKEN", "")


def webhook_secret() -> str:
    """Return the secret that events may be signed with; it is no setting either."""
    return os.environ.get("GRISTMILL_WEBHOOK_SECRET", "")


def notify_token() -> str:
    """Return the bearer token for notices; a secret, so it is no setting."""
    return os.environ.get("GRISTMILL_NOTIFY_TOKEN", "")


def has_prefect_api() -> bool:
    """Return whether a Prefect API is configured."""
    return bool(os.environ.get("PREFECT_API_URL"))


def prepare_llm() -> None:
    """Have the LLM's threads give up their core while they wait. To be called before torch or llama.cpp is loaded.

    On shared cores an answer took 2 to 5 s, not 25. Only for a build with notes by the LLM: it takes embedding from 21
    to 19 chunks/s.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


Mode = Literal["hybrid", "dense", "bm25"]
