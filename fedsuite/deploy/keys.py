"""SuperNodes' keys: elliptic-curve pairs (P-384) in OpenSSH form, as Flower's SuperNodes take."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from fedsuite.core.settings import UserError
from fedsuite.deploy.certificates import write_private
from fedsuite.flower.control import CommandFailed, flwr

IN_USE = "already in use"


def key_file(folder: Path, number: int) -> Path:
    """Return where a node's private key is; its public one is beside it, with ``.pub``."""
    return folder / f"node-{number}"


def public_half(key: Path) -> Path:
    """Return the public key that belongs to a private one."""
    return key.with_name(f"{key.name}.pub")


def make_key(path: Path) -> bool:
    """Make a key pair, unless it is there; say whether it is new."""
    if path.exists() and public_half(path).exists():
        return False
    if path.exists():
        raise UserError(
            f"{path} exists without {public_half(path).name} and is not written over. Make the "
            f"public key by `ssh-keygen -y -f {path} > {public_half(path)}`, or move it away."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    pair = ec.generate_private_key(ec.SECP384R1())
    public = pair.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    write_private(path, pair.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public_half(path).write_bytes(public + b"\n")
    return True


def register(public: Path, connection: str, home: Path | None = None) -> bool:
    """Let a SuperLink accept the owner of a key; say whether that is new."""
    try:
        flwr(["supernode", "register", str(public), connection], home)
    except CommandFailed as error:
        if IN_USE in str(error):
            return False
        raise
    return True
