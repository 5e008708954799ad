"""Flower's file of connections: one entry changes, everything else stays."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from fedsuite.cli.main import main
from fedsuite.core.settings import UserError
from fedsuite.deploy.certificates import make_certificates
from fedsuite.flower.connections import (
    Connection,
    config_file,
    connection_names,
    find_connection,
    remove_connection,
    write_connection,
)

MINE = """\
# my own notes
[superlink]
default = "work"  # the usual one

[superlink.work]
address = "10.0.0.1:8000"
insecure = true

# the lab's, ask Ada
[superlink.lab]
address = "lab.example.org:8000"   # over VPN
root-certificates = "/etc/lab/ca.crt"
"""
OURS = Connection("local-deployment", "127.0.0.1:4000", Path("/x/ca.crt"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    return tmp_path


def test_an_entry_is_added_and_removed_and_nothing_else_changes(home: Path) -> None:
    (home / "config.toml").write_text(MINE)
    write_connection(OURS)
    text = (home / "config.toml").read_text()
    assert text.startswith(MINE)
    assert tomllib.loads(text)["superlink"]["local-deployment"] == {
        "address": "127.0.0.1:4000",
        "root-certificates": "/x/ca.crt",
    }
    assert remove_connection("local-deployment")
    assert (home / "config.toml").read_text() == MINE
    assert not remove_connection("local-deployment")


def test_an_entry_in_the_middle_is_replaced_with_its_neighbours_kept(home: Path) -> None:
    ours = '[superlink.local-deployment]\n# stale\naddress = "127.0.0.1:1"\ninsecure = true\n\n'
    before, after = MINE.split("# the lab's")
    (home / "config.toml").write_text(f"{before}{ours}# the lab's{after}")
    write_connection(OURS)
    text = (home / "config.toml").read_text()
    assert text.count("[superlink.local-deployment]") == 1
    assert "# the lab's, ask Ada\n[superlink.lab]" in text and "# my own notes" in text
    assert find_connection("local-deployment") == OURS
    assert remove_connection("local-deployment")
    assert tomllib.loads((home / "config.toml").read_text()) == tomllib.loads(MINE)


LAYOUTS = {
    "inline": """\
[superlink]
local-deployment = { address = "127.0.0.1:1", insecure = true }
work = { address = "10.0.0.1:8000" }  # kept
""",
    "inline section": """\
# kept
superlink = { local-deployment = { address = "127.0.0.1:1" }, work = { address = "10.0.0.1:1" } }
""",
    "dotted": """\
superlink.work.address = "10.0.0.1:8000"  # kept
superlink.local-deployment.address = "127.0.0.1:1"
""",
    "scattered": """\
[superlink.local-deployment]
address = "127.0.0.1:1"

[other]
number = 1
# kept
[superlink.work]
address = "10.0.0.1:8000"
""",
    "last": """\
[superlink.work]
address = "10.0.0.1:8000"
[superlink.local-deployment]
address = "127.0.0.1:1"
# kept
""",
    "quoted": """\
[superlink."local-deployment"]
address = "127.0.0.1:1"
[superlink."local-deployment".options]
verbose = true
# kept
[superlink.work]
address = "10.0.0.1:8000"
""",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_entry_is_replaced_however_the_file_is_written(home: Path, layout: str) -> None:
    (home / "config.toml").write_text(LAYOUTS[layout])
    others = tomllib.loads(LAYOUTS[layout])
    del others["superlink"]["local-deployment"]
    write_connection(OURS)
    text = (home / "config.toml").read_text()
    assert find_connection("local-deployment") == OURS and "# kept" in text
    written = tomllib.loads(text)
    del written["superlink"]["local-deployment"]
    assert written == others
    assert remove_connection("local-deployment")
    text = (home / "config.toml").read_text()
    assert tomllib.loads(text) == others and "# kept" in text


def test_a_new_file_has_flowers_own_entries_too(home: Path) -> None:
    write_connection(Connection("local-deployment", "127.0.0.1:4000"))
    assert {"local", "local-deployment"} <= set(connection_names())
    entry = tomllib.loads(config_file().read_text())["superlink"]["local-deployment"]
    assert entry == {"address": "127.0.0.1:4000", "insecure": True}


def test_a_linked_file_stays_a_link_and_keeps_its_mode(home: Path) -> None:
    real = home / "dotfiles.toml"
    real.write_text(MINE)
    real.chmod(0o600)
    (home / "config.toml").symlink_to(real)
    write_connection(OURS)
    assert (home / "config.toml").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600


def test_an_unknown_name_lists_those_there_are(home: Path) -> None:
    (home / "config.toml").write_text(MINE)
    with pytest.raises(UserError, match=r"no SuperLink connection 'labs'.*'lab'.*lab, work"):
        find_connection("labs")
    (home / "config.toml").write_text("[superlink")
    with pytest.raises(UserError, match="not valid TOML"):
        find_connection("lab")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:8000", True),
        ("[::1]:8000", True),
        ("localhost:8000", True),
        (":local:", True),
        ("10.0.0.1:8000", False),
        ("hub.example.org:8000", False),
        ("api.flower.ai", False),
    ],
)
def test_what_is_on_this_machine(address: str, expected: bool) -> None:
    assert Connection("x", address).is_loopback is expected


def test_connect_names_a_superlink(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_certificates(home / "certs")
    words = ["deploy", "connect", "hub", "hub.example.org:8000", "--ca"]
    assert main([*words, str(made.ca)]) == 0
    assert find_connection("hub") == Connection("hub", "hub.example.org:8000", made.ca)
    assert main([*words, str(home / "none.crt")]) == 2
    assert main(["deploy", "connect", "hub", "hub.example.org", "--ca", str(made.ca)]) == 2
    assert "no port" in capsys.readouterr().err
    assert main(["deploy", "connect", "my.hub", "h:1", "--ca", str(made.ca)]) == 2
    assert "invalid connection name 'my.hub'" in capsys.readouterr().err
