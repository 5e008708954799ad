"""The name of an owner, which checkpoints keep: it must not change from version to version."""

from __future__ import annotations

from fedsuite.core.protocol import owner_name


def test_an_owner_is_named_by_half_of_sha_256() -> None:
    """The standard's own example (FIPS 180) of "abc", its first 32 of 64 digits."""
    assert owner_name("abc") == "ba7816bf8f01cfea414140de5dae2223"
