"""A private certificate authority and the SuperLink's server certificate."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedsuite.core.files import create_private, write_atomically
from fedsuite.core.settings import UserError

CA_DAYS = 3650
SERVER_DAYS = 365
CLOCK_SKEW = timedelta(hours=1)
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Certificates:
    """The four files of a folder of certificates."""

    folder: Path

    @property
    def ca(self) -> Path:
        """The CA's certificate, which everyone needs."""
        return self.folder / "ca.crt"

    @property
    def ca_key(self) -> Path:
        """The CA's private key, which signs certificates and stays offline."""
        return self.folder / "ca.key"

    @property
    def server(self) -> Path:
        """The SuperLink's certificate."""
        return self.folder / "server.crt"

    @property
    def server_key(self) -> Path:
        """The SuperLink's private key, which stays on its machine."""
        return self.folder / "server.key"

    @property
    def files(self) -> tuple[Path, ...]:
        """All four."""
        return (self.ca, self.ca_key, self.server, self.server_key)


def make_certificates(
    folder: Path, names: Sequence[str] = (), days: int = SERVER_DAYS, force: bool = False
) -> Certificates:
    """Make a CA, unless the folder has one, and a server certificate for loopback and ``names``.

    ``force`` replaces all four files, the CA included; without it nothing is overwritten.
    """
    made = Certificates(folder)
    alternatives = [_alternative(name) for name in dict.fromkeys((*LOOPBACK_NAMES, *names))]
    if force:
        for path in made.files:
            path.unlink(missing_ok=True)
    _refuse_existing(made)
    folder.mkdir(parents=True, exist_ok=True)
    if not made.ca.exists():
        _make_ca(made)
    _make_server(made, alternatives, days)
    return made


def expires(certificate: Path) -> datetime:
    """Return when a certificate expires."""
    return _read(certificate).not_valid_after_utc


def names_of(certificate: Path) -> list[str]:
    """Return the host names and addresses a certificate is valid for."""
    kind = x509.SubjectAlternativeName
    return [
        str(name.value)
        for name in _read(certificate).extensions.get_extension_for_class(kind).value
    ]


def _refuse_existing(made: Certificates) -> None:
    existing = [path for path in (made.server, made.server_key) if path.exists()]
    if made.ca.exists() != made.ca_key.exists():
        existing += [path for path in (made.ca, made.ca_key) if path.exists()]
    if existing:
        raise UserError(
            f"{', '.join(str(path) for path in existing)} already exists and is not overwritten. "
            "To renew the server's certificate with the same CA, delete server.crt and "
            "server.key first; to replace everything, the CA included, use --force."
        )


def _make_ca(made: Certificates) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("fedsuite CA")
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = _builder(name, name, key.public_key(), CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(own, critical=False)
    _write(made.ca, made.ca_key, builder.sign(key, hashes.SHA256()), key)


def _make_server(made: Certificates, names: Sequence[x509.GeneralName], days: int) -> None:
    authority, ca_key = _read(made.ca), _read_key(made.ca_key)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(
        _name("fedsuite SuperLink"),
        authority.subject,
        key.public_key(),
        days,
        authority.not_valid_after_utc,
    )
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs_certificates=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName(names), False),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), False),
    ]
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    _write(made.server, made.server_key, builder.sign(ca_key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    days: int,
    latest: datetime | None = None,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(min(end, latest) if latest is not None else end)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    """Return an IP address or a DNS name as a certificate has it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    labels = name.removeprefix("*.").split(".")
    if not name.isascii() or not all(_is_label(label) for label in labels):
        raise UserError(
            f"invalid value '{name}' for --name: neither an IP address nor a DNS name. Give the "
            "name by which SuperNodes reach the SuperLink, without port or https://, e.g. "
            "hub.example.org."
        )
    return x509.DNSName(name)


def _is_label(label: str) -> bool:
    letters = label.replace("-", "").replace("_", "")
    return 0 < len(label) < 64 and letters.isalnum() and label[0] != "-" and label[-1] != "-"


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _read(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        raise UserError(
            f"There is no certificate {path}. `fedsuite deploy certs` makes one."
        ) from None
    except ValueError:
        raise UserError(f"{path} is not a PEM certificate.") from None


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UserError(
            f"{path} is not an unencrypted elliptic-curve key, as `fedsuite deploy certs` makes. "
            "Use another --dir, or --force to replace everything."
        )
    return key


def _write(
    certificate: Path, key_file: Path, signed: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    create_private(key_file, secret)
    write_atomically(certificate, signed.public_bytes(Encoding.PEM))
