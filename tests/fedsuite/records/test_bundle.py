"""Bundles: the same bytes for the same files, nothing hostile unpacked, read as a folder is."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_run

import fedsuite
from fedsuite.cli.main import main
from fedsuite.core.files import acquire
from fedsuite.records import bundle as bundles
from fedsuite.records.bundle import record_files, unpack, write_bundle
from fedsuite.records.digests import model_digests
from fedsuite.records.folder import RunFolder

# SHA-256 of the three bytes "abc", an example of FIPS 180-2
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
FILES: dict[str, Path | bytes] = {"suite.json": b"{}", f"deep/{'n' * 150}.txt": b"abc"}


def folder_of(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.fixture
def stub_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make no report, which other tests do: it takes seconds."""

    def make_report(name: str, out: Path) -> None:
        out.mkdir()
        (out / "index.html").write_text("a page")

    monkeypatch.setattr("fedsuite.report.build.make_report", make_report)


@pytest.mark.parametrize("ending", bundles.ENDINGS)
def test_the_same_files_give_the_same_bytes(ending: str, tmp_path: Path) -> None:
    one, other = tmp_path / f"one{ending}", tmp_path / f"other{ending}"
    write_bundle(one, "mine", FILES)
    write_bundle(other, "mine", dict(reversed(FILES.items())))
    assert one.read_bytes() == other.read_bytes()
    found = folder_of(unpack(one, tmp_path / "out"))
    index = json.loads(found.pop("bundle.json"))
    assert found == FILES and index["files"][f"deep/{'n' * 150}.txt"] == ABC


@pytest.mark.parametrize("ending", bundles.ENDINGS)
def test_a_bundle_that_was_cut_is_named(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"mine{ending}"
    write_bundle(path, "mine", FILES)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(fedsuite.UserError, match=f"mine{ending} is not a whole bundle"):
        fedsuite.load(path)


def write_tar(path: Path, change: Callable[[tarfile.TarInfo], None], content: bytes = b"") -> None:
    """Write a bundle of one file and its index, the file's header changed."""
    with tarfile.open(path, "w:gz") as tar:
        for name, text in (("mine/bundle.json", b'{"files": {}}'), ("mine/file", content)):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            if name == "mine/file":
                change(member)
            tar.addfile(member, io.BytesIO(text))


@pytest.mark.parametrize(
    "header",
    [
        {"name": "/etc/evil"},
        {"name": "mine/../../evil"},
        {"name": "evil"},
        {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
        {"type": tarfile.LNKTYPE, "linkname": "mine/bundle.json"},
        {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3},
        {"type": tarfile.FIFOTYPE},
        {"type": tarfile.GNUTYPE_SPARSE},
        {"name": "mine/bundle.json"},
        {"name": "yours/file"},
        {"pax_headers": {"comment": "x" * 100_000}},
        {},
    ],
    ids=str,
)
def test_hostile_files_are_refused(header: dict[str, Any], tmp_path: Path) -> None:
    """The last is a plain file that the index does not list."""

    def change(member: tarfile.TarInfo) -> None:
        for key, value in header.items():
            setattr(member, key, value)

    write_tar(tmp_path / "x.tar.gz", change)
    with pytest.raises(fedsuite.UserError, match="is not a whole bundle"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "deep" / "out")
    assert not list(tmp_path.rglob("evil")) and not Path("/etc/evil").exists()


@pytest.mark.parametrize(("limit", "value"), [("MAX_BYTES", 100), ("MAX_FILES", 1)])
def test_more_than_a_bound_is_refused(
    limit: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tar(tmp_path / "x.tar.gz", lambda member: None, bytes(1000))
    monkeypatch.setattr(bundles, limit, value)
    with pytest.raises(fedsuite.UserError, match="too large to be opened"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "out")
    assert not (tmp_path / "out" / "mine" / "file").exists()


def test_a_changed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in (("bundle.json", json.dumps({"files": {"a": ABC}})), ("a", "abd")):
            member = tarfile.TarInfo(f"mine/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    with pytest.raises(fedsuite.UserError, match="'a' is not as its bundle.json says"):
        unpack(path, tmp_path / "out")


def test_models_are_left_out_unless_asked_for_but_their_digests_are_there(tmp_path: Path) -> None:
    folder = RunFolder(write_run(tmp_path, "mine", "fedavg", [0.1, 0.5]))
    folder.model_file.write_bytes(b"abc")
    folder.client_models.mkdir()
    folder.client_model_file(3).write_bytes(b"abc")
    (folder.path / "run.log").write_text("chatter")
    digests = {"model.safetensors": ABC, "models/client-000003.safetensors": ABC}
    assert model_digests(folder) == digests
    plain, whole = record_files(folder), record_files(folder, models=True)
    record = {"config.json", "history.jsonl", "clients.jsonl", "summary.json"}
    assert plain.keys() == record | {"models.json"}
    assert whole.keys() == plain.keys() | digests.keys()
    write_bundle(tmp_path / "x.tar.gz", "mine", plain)
    unpacked = unpack(tmp_path / "x.tar.gz", tmp_path / "out")
    assert model_digests(RunFolder(unpacked)) == digests


@pytest.mark.usefixtures("stub_report")
def test_a_run_is_read_from_its_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs", "mine", "fedavg", [0.1, 0.5])
    before = folder_of(tmp_path / "runs")
    assert main(["bundle", "mine"]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'mine.tar.zst'} (")
    run = fedsuite.load("mine.tar.zst")
    assert run.summary == fedsuite.load("mine").summary and run.name == "mine"
    assert list(run.history["accuracy"]) == [0.1, 0.5] and len(run.clients) == 8
    assert (run.path / "report" / "index.html").read_text() == "a page"
    assert main(["show", "mine.tar.zst"]) == 0 and "finished" in capsys.readouterr().out
    assert folder_of(tmp_path / "runs") == before


@pytest.mark.usefixtures("stub_report")
def test_a_suite_is_read_from_its_bundle(suite: Path, tmp_path: Path) -> None:
    path = fedsuite.bundle(suite, tmp_path / "demo.tar.gz")
    ours, theirs = fedsuite.compare(suite).table, fedsuite.compare(path).table
    assert ours.equals(theirs) and len(ours) == 6
    run = fedsuite.load(path / "taco-s1")
    assert run.summary == fedsuite.load(suite / "taco-s1").summary
    with pytest.raises(fedsuite.UserError, match=r"holds 12 runs: .+/feda4-s1\."):
        fedsuite.load(path)


@pytest.mark.usefixtures("stub_report")
def test_what_cannot_be_packed_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "mine", "fedavg", [0.1, 0.5])
    with pytest.raises(fedsuite.UserError, match=r"name ends in .tar.zst or .tar.gz"):
        fedsuite.bundle(folder, tmp_path / "mine.zip")
    with pytest.raises(fedsuite.UserError, match="Choose a file that you can write"):
        fedsuite.bundle(folder, tmp_path / "none" / "mine.tar.gz")
    with acquire(folder / ".lock", 0.0, ""):
        with pytest.raises(fedsuite.UserError, match="'mine' is still being written"):
            fedsuite.bundle(folder, tmp_path / "mine.tar.gz")
    with pytest.raises(fedsuite.UserError, match="or a bundle"):
        fedsuite.bundle(tmp_path / "none.tar.gz")


@pytest.mark.slow
def test_the_report_of_a_bundle_is_that_of_its_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "mine", "fedavg", [0.1, 0.5])
    path = fedsuite.bundle(folder, tmp_path / "mine.tar.zst")
    assert main(["report", str(path), "-o", str(tmp_path / "again")]) == 0
    inside = unpack(path, tmp_path / "out") / "report"
    assert folder_of(inside) == folder_of(tmp_path / "again")
