"""Parsing in worker processes, so that no file can take the build down."""

from parsers.isolation.pool import Limits, Parsed, ParserPool

__all__ = ["Limits", "Parsed", "ParserPool"]
