"""A network namespace for one node, connected to this machine by one virtual cable."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

NAMESPACE, OUTSIDE, INSIDE = "fedsuite-node", "fedsuite-out", "fedsuite-in"
HOST_ADDRESS, NODE_ADDRESS = "10.213.7.1", "10.213.7.2"


@contextlib.contextmanager
def namespace() -> Iterator[str]:
    """Make a network namespace and return its name; "" if this machine does not allow it."""
    try:
        _ip("netns", "add", NAMESPACE)
    except (OSError, subprocess.CalledProcessError):
        print("network namespaces are not allowed here; the node is paused instead", flush=True)
        yield ""
        return
    try:
        _ip("link", "add", OUTSIDE, "type", "veth", "peer", "name", INSIDE, "netns", NAMESPACE)
        _ip("addr", "add", f"{HOST_ADDRESS}/30", "dev", OUTSIDE)
        _ip("link", "set", OUTSIDE, "up")
        for words in (
            ("addr", "add", f"{NODE_ADDRESS}/30", "dev", INSIDE),
            ("link", "set", INSIDE, "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-n", NAMESPACE, *words)
        yield NAMESPACE
    finally:
        with contextlib.suppress(
            subprocess.CalledProcessError
        ):  # before it goes with its processes
            _ip("link", "del", OUTSIDE)
        _ip("netns", "del", NAMESPACE)


def cut() -> None:
    """Take the cable down."""
    _ip("link", "set", OUTSIDE, "down")


def mend() -> None:
    """Take the cable up again."""
    _ip("link", "set", OUTSIDE, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
