"""What a plan says beforehand, against what the documents make."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Workspace
from test_flows_build import NOTHING
from test_flows_changes import PNG, fill

from chunker.split import split
from flows.build import estimates
from flows.build.dry_run import plan_build
from flows.build.estimates import Unread
from flows.cli import printing
from flows.models.ruler import chunker_settings, open_ruler
from flows.settings import Settings
from parsers.registry import read

MOST = 1.5  # by which factor a plan may be off


def made(settings: Settings, folder: Path) -> int:
    """The chunks that the documents of a folder make."""
    ruler, chunker = open_ruler(settings), chunker_settings(settings)
    count = 0
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            document = read(path.name, path.read_bytes())
            if document.status in ("ok", "partial"):
                count += len(split(document, document.title or path.name, ruler, chunker))
    return count


def near(planned: int, real: int) -> bool:
    return real / MOST <= planned <= real * MOST if real else planned == 0


def mirror(workspace: Workspace, folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            workspace.write(path.relative_to(folder).as_posix(), path.read_bytes())


@pytest.mark.parametrize("sampled", [estimates.SAMPLED, 4])
def test_o73_a_plan_is_near_on_real_folders(
    workspace: Workspace, shared: Path, monkeypatch: pytest.MonkeyPatch, sampled: int
) -> None:
    """Also where but some documents of a type are sampled."""
    monkeypatch.setattr(estimates, "SAMPLED", sampled)
    off = {}
    for folder in sorted((shared / "realdocs").iterdir()):
        if folder.is_dir() and folder.name not in ("LICENCES", "round2"):
            settings = workspace.settings(source=str(folder))
            planned, real = plan_build(settings)["work"]["rows_written"], made(settings, folder)
            few = sampled < estimates.SAMPLED and folder.name in ("pdf", "html", "docx")  # of very unlike files
            if not (near(planned, real) or few):
                off[folder.name] = (planned, real)
    assert not off


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "round2"])
def test_o73_a_plan_is_near_on_all_real_files(workspace: Workspace, shared: Path, name: str) -> None:
    settings = workspace.settings(source=str(shared / "realdocs" / name))
    assert near(plan_build(settings)["work"]["rows_written"], made(settings, shared / "realdocs" / name))


def test_o73_pictures_and_films_are_skipped_not_text(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    fill(workspace)
    for number in range(4):
        workspace.write(f"{number}.png", PNG * 3_000)
        workspace.write(f"{number}.blob", bytes(300_000))  # a type that only its bytes tell
    planned = plan_build(workspace.settings())
    assert planned["documents"]["add"] == 7 and planned["documents"]["skipped"] == 4
    assert planned["work"]["rows_written"] == 3 and planned["work"]["parsed"] == 7
    assert all(not step["key"].endswith(".png") for step in planned["steps"])
    assert planned["skipped"] == [{"type": ".png", "documents": 4, "example": "0.png", "exclude": "*.png"}]
    printing.print_plan(planned)
    out = capsys.readouterr().out
    assert 'exclude = ["*.png"]' in out and "estimates" in out
    report = workspace.build()
    assert report["work"]["rows_written"] == 3 and report["documents"]["skipped"] == 8
    planned = plan_build(workspace.settings())
    assert (
        planned["work"] == NOTHING and planned["documents"]["unchanged"] == 7 and planned["documents"]["skipped"] == 4
    )


def test_many_documents_are_estimated_from_a_sample_of_their_type(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimates, "SAMPLED", 10)
    for number in range(200):
        workspace.write(f"{number}.md", f"# {number}\n\n" + f"Turn the valve {number} times. " * (3 + number % 40))
        workspace.write(f"{number}.csv", "a,b\n" + f"valve {number},twice\n" * (3 + number % 40))
    settings = workspace.settings()
    planned = plan_build(settings)
    assert near(planned["work"]["rows_written"], made(settings, workspace.docs))
    assert planned["work"]["parsed"] == 400 and planned["rates"]["parse"] > 0


def test_a_sample_is_the_same_in_every_order_and_bounded() -> None:
    documents = [Unread(f"{number}.md", number * 10_000) for number in range(300)]
    sample = estimates._samples(documents)
    assert estimates._samples(reversed(documents)) == sample
    (own,) = sample.values()
    assert len(own) <= estimates.SAMPLED and sum(one.size for one in own) <= estimates.SAMPLED_BYTES
    assert estimates._samples([Unread("a.pdf", 10**9)]) == {".pdf": [Unread("a.pdf", 10**9)]}, "one at least"
