"""SuperNodes' keys: elliptic-curve pairs (P-384) in OpenSSH format, as Flower requires."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from fedsuite.core.files import create_private, write_atomically
from fedsuite.core.settings import UserError
from fedsuite.flower.commands import CommandFailed, flwr
from fedsuite.flower.compat import KEY_IN_USE


def key_file(folder: Path, number: int) -> Path:
    """Return the path of a node's private key."""
    return folder / f"node-{number}"


def public_half(key: Path) -> Path:
    """Return the path of the public key that belongs to a private one."""
    return key.with_name(f"{key.name}.pub")


def make_key(path: Path) -> bool:
    """Make a key pair unless it exists; return whether it is new."""
    if path.exists() and public_half(path).exists():
        return False
    if path.exists():
        raise UserError(
            f"{path} exists without {public_half(path).name} and is not overwritten. Make the "
            f"public key with `ssh-keygen -y -f {path} > {public_half(path)}`, or move it away."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    pair = ec.generate_private_key(ec.SECP384R1())
    public = pair.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    create_private(path, pair.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    write_atomically(public_half(path), public + b"\n")
    return True


def register(public: Path, connection: str, home: Path | None = None) -> bool:
    """Let a SuperLink accept SuperNodes with this key; return whether the key is new to it."""
    try:
        flwr(["supernode", "register", str(public), connection], home)
    except CommandFailed as error:
        if KEY_IN_USE in str(error):
            return False
        raise
    return True
