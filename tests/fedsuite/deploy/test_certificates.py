"""Certificates and keys, read back by other code than wrote them."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedsuite.cli.main import main
from fedsuite.core.settings import UserError
from fedsuite.deploy.certificates import Certificates, make_certificates
from fedsuite.deploy.keys import make_key, public_half

Extension = TypeVar("Extension", bound=x509.ExtensionType)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    names = ["hub.example.org", "10.1.2.3", "fd00::7"]
    return make_certificates(tmp_path_factory.mktemp("certs"), names, days=30)


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def extension(path: Path, kind: type[Extension]) -> Extension:
    return read(path).extensions.get_extension_for_class(kind).value


def shake_hands(made: Certificates, host: str, trust: Path) -> str:
    """Serve TLS on loopback with the server's files; return what a client that trusts it hears."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(made.server, made.server_key)
    client_side = ssl.create_default_context(cafile=str(trust))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            try:
                with server_side.wrap_socket(connection, server_side=True) as secure:
                    secure.sendall(b"hello")
            except OSError:
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with socket.create_connection(listener.getsockname(), timeout=10) as plain:
                with client_side.wrap_socket(plain, server_hostname=host) as secure:
                    return secure.recv(5).decode()
        finally:
            thread.join()


def test_the_server_certificate_names_loopback_and_the_names_given(made: Certificates) -> None:
    names = extension(made.server, x509.SubjectAlternativeName)
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "hub.example.org"]
    addresses = ["127.0.0.1", "::1", "10.1.2.3", "fd00::7"]
    expected = [ipaddress.ip_address(address) for address in addresses]
    assert names.get_values_for_type(x509.IPAddress) == expected


def test_only_the_ca_may_sign(made: Certificates) -> None:
    assert extension(made.ca, x509.BasicConstraints).ca
    assert extension(made.ca, x509.KeyUsage).key_cert_sign
    assert not extension(made.server, x509.BasicConstraints).ca
    usage = extension(made.server, x509.KeyUsage)
    assert usage.digital_signature and not usage.key_cert_sign
    assert list(extension(made.server, x509.ExtendedKeyUsage)) == [
        x509.oid.ExtendedKeyUsageOID.SERVER_AUTH
    ]
    read(made.server).verify_directly_issued_by(read(made.ca))


def test_it_expires_when_asked(made: Certificates) -> None:
    left = read(made.server).not_valid_after_utc - datetime.now(UTC)
    assert timedelta(days=29) < left <= timedelta(days=30)


def test_only_the_owner_reads_the_keys(made: Certificates) -> None:
    for path in (made.ca_key, made.server_key):
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "hub.example.org", "10.1.2.3"])
def test_a_client_that_trusts_the_ca_connects(made: Certificates, host: str) -> None:
    assert shake_hands(made, host, made.ca) == "hello"


def test_another_name_or_another_ca_is_refused(made: Certificates, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        shake_hands(made, "other.example.org", made.ca)
    other = make_certificates(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(made, "localhost", other.ca)


def test_nothing_is_written_over_without_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "certs")
    assert main(["deploy", "certs", "--dir", folder, "--name", "hub.example.org"]) == 0
    said = capsys.readouterr().out
    assert "offline" in said and "hub.example.org" in said and "expires" in said
    files = Certificates(tmp_path / "certs")
    before = [path.read_bytes() for path in files.files]
    assert main(["deploy", "certs", "--dir", folder]) == 2
    assert "--force" in capsys.readouterr().err
    assert [path.read_bytes() for path in files.files] == before
    assert main(["deploy", "certs", "--dir", folder, "--force"]) == 0
    assert not set(before) & {path.read_bytes() for path in files.files}


def test_the_same_ca_signs_a_renewed_certificate(tmp_path: Path) -> None:
    first = make_certificates(tmp_path)
    authority = first.ca.read_bytes()
    first.server.unlink()
    first.server_key.unlink()
    renewed = make_certificates(tmp_path, days=10)
    assert renewed.ca.read_bytes() == authority
    assert shake_hands(renewed, "localhost", first.ca) == "hello"


def test_check_says_when_they_expire(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path)
    make_certificates(tmp_path, days=10)
    assert main(["deploy", "certs", "--check", "--dir", folder]) == 0
    day = datetime.now(UTC) + timedelta(days=10)
    assert f"server.crt expires soon, {day:%Y-%m-%d}" in capsys.readouterr().out
    assert main(["deploy", "certs", "--check", "--dir", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize("name", ["https://hub", "hub:9092", "", "-x.org", "naïve.org"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="neither an IP address nor a DNS name"):
        make_certificates(tmp_path / "certs", [name])
    assert not (tmp_path / "certs").exists()


def test_keys_are_what_flower_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "keys"
    assert main(["deploy", "keys", "2", "--dir", str(folder)]) == 0
    for number in (0, 1):
        path = folder / f"node-{number}"
        assert path.stat().st_mode & 0o777 == 0o600
        private = load_ssh_private_key(path.read_bytes(), None)
        public = load_ssh_public_key(public_half(path).read_bytes())
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.curve.name == "secp384r1"
        assert private.public_key() == public
    before = (folder / "node-0").read_bytes()
    capsys.readouterr()
    assert main(["deploy", "keys", "2", "--dir", str(folder)]) == 0
    assert "is there already" in capsys.readouterr().out
    assert (folder / "node-0").read_bytes() == before


def test_a_private_key_alone_is_never_replaced(tmp_path: Path) -> None:
    make_key(tmp_path / "node-0")
    public_half(tmp_path / "node-0").unlink()
    with pytest.raises(UserError, match="ssh-keygen -y"):
        make_key(tmp_path / "node-0")


@pytest.mark.parametrize("count", [1, 2])
def test_a_full_disk_leaves_no_half_of_a_file(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of a private nor of a public one; a private one is private while it is written."""
    modes: list[int] = []
    fsync = os.fsync

    def fill_up(descriptor: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        if len(modes) == count:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fill_up)
    for make, folder in ((certificates, tmp_path / "certs"), (keys, tmp_path / "keys")):
        modes.clear()
        with pytest.raises(OSError, match="No space left"):
            make(folder)
        assert modes[0] == 0o600
        first = "node-0" if make is keys else "ca.key"
        assert [path.name for path in folder.iterdir()] == [first][: count - 1]


def certificates(folder: Path) -> None:
    make_certificates(folder, [])


def keys(folder: Path) -> None:
    make_key(folder / "node-0")
