"""Errors of the store's libraries as the user meets them: a message, a remedy, and no traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest
import tantivy
from typer.testing import CliRunner

from flows.cli.app import app
from indexes.lexical.index import COLUMNS, LexicalIndex
from indexes.storage.errors import as_store_error, clear_errors, is_panic
from parsers.errors import GateRefused, StoreError


def a_panic(tmp_path: Path) -> BaseException:
    """A real one of tantivy's: a document's address in a segment that is not there."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("id", stored=True, tokenizer_name="raw")
    index = tantivy.Index(builder.build(), path=str(tmp_path))
    try:
        index.searcher().doc(tantivy.DocAddress(7, 0))
    except BaseException as error:
        return error
    raise AssertionError("it did not panic")


def test_a_panic_is_no_exception_and_becomes_a_clear_error(tmp_path: Path) -> None:
    panic = a_panic(tmp_path)
    assert not isinstance(panic, Exception) and is_panic(panic)
    with (
        pytest.raises(StoreError, match="index somewhere: a file of it cannot be read") as error,
        clear_errors("somewhere"),
    ):
        raise panic
    assert "gristmill verify" in error.value.remedy and "/root/.cargo" not in error.value.message


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), GateRefused("no"), TypeError("ours"), ValueError("ours")]
)
def test_what_is_no_error_of_a_store_passes(error: BaseException) -> None:
    assert as_store_error("somewhere", error) is None
    with pytest.raises(type(error)), clear_errors("somewhere"):
        raise error


def test_what_lancedb_says_of_a_damaged_file_is_clear(tmp_path: Path) -> None:
    table = lancedb.connect(str(tmp_path)).create_table("t", pa.table({"n": range(100)}))
    (data,) = (tmp_path / "t.lance" / "data").iterdir()
    data.write_bytes(data.read_bytes()[:50])
    with pytest.raises(StoreError, match="cannot be read") as error, clear_errors(str(tmp_path)):
        table.search().limit(None).to_arrow()
    assert "rustc" not in error.value.message and "\n" not in error.value.message
    with pytest.raises(StoreError, match="cannot be read"), clear_errors(str(tmp_path)):
        lancedb.connect(str(tmp_path)).open_table("another")


def test_a_panic_in_a_command_ends_in_json_and_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panic = a_panic(tmp_path)

    def panics(*_: Any, **__: Any) -> None:
        raise panic

    monkeypatch.setattr("flows.maintenance.status.index_status", panics)
    done = CliRunner().invoke(app, ["status", "--index", "somewhere", "--json"])
    said = json.loads(done.stdout.splitlines()[-1])
    assert done.exit_code == said["exit_status"] == 2 and "somewhere" in said["error"] and "verify" in said["remedy"]
    assert "Traceback" not in done.output


@pytest.mark.parametrize("suffix", ["idx", "pos", "fieldnorm", "store", "term", "fast"])
def test_no_flip_in_a_bm25_file_ends_in_anything_else(tmp_path: Path, suffix: str) -> None:
    """Without any check of digests before: as in a file whose damage comes after the opening."""
    index = LexicalIndex.create(tmp_path / "one")
    row = dict.fromkeys(COLUMNS, "") | {"labels": [], "heading_path": []}
    rows = [row | {"chunk_id": f"{n:032x}", "row_digest": f"{n:064x}", "text": f"pump {n} valve"} for n in range(60)]
    index.apply([], pa.Table.from_pylist(rows))
    index.commit()
    index.close()
    (path,) = (tmp_path / "one").glob(f"*.{suffix}")
    whole = path.read_bytes()
    outcomes = set()
    for place in range(0, len(whole), max(1, len(whole) // 12)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            opened = LexicalIndex.open(tmp_path / "one")
            opened.search('pump "7 valve"', 5)
            list(opened.stamps())
            outcomes.add("answer")
        except StoreError as error:
            assert "gristmill repair" in error.remedy
            outcomes.add("error")
    assert outcomes
