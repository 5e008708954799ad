"""The commands of real deployment: ``fedsuite deploy certs | keys | connect | up | down | ...``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fedsuite.core.settings import UserError

FOLDER = ".fedsuite-deploy"
CONNECTION = "local-deployment"
NODES = 4
SOON = timedelta(days=30)


def add_deploy_commands(commands: Any, positive: Callable[[str], int]) -> None:
    """Add them to the command line."""
    deploy = commands.add_parser("deploy", help="certificates, keys, and a federation to try")
    parts = deploy.add_subparsers(metavar="WHAT", required=True)
    _add_certs(parts, positive)
    _add_keys(parts, positive)
    _add_connect(parts)
    _add_up(parts, positive)
    down = parts.add_parser("down", help="end the local federation")
    _add_folder(down)
    down.set_defaults(do=_down)
    status = parts.add_parser("status", help="say how the local federation stands")
    _add_folder(status)
    status.set_defaults(do=_status)


def _add_certs(parts: Any, positive: Callable[[str], int]) -> None:
    certs = parts.add_parser("certs", help="make a CA and the SuperLink's certificate")
    certs.add_argument("--dir", default="certs", help="where to (default: certs)")
    certs.add_argument(
        "--name",
        nargs="+",
        action="extend",
        default=[],
        metavar="HOST",
        help="DNS name or IP address of the SuperLink, as SuperNodes call it",
    )
    certs.add_argument("--days", type=positive, default=365, metavar="N", help="validity")
    certs.add_argument("--force", action="store_true", help="write over existing files, CA too")
    certs.add_argument("--check", action="store_true", help="only say when they expire")
    certs.set_defaults(do=_certs)


def _add_keys(parts: Any, positive: Callable[[str], int]) -> None:
    keys = parts.add_parser("keys", help="make keys of SuperNodes")
    keys.add_argument("count", type=positive, metavar="N", help="how many")
    keys.add_argument("--dir", default="keys", help="where to (default: keys)")
    keys.add_argument("--register", default="", metavar="NAME", help="at this SuperLink connection")
    keys.set_defaults(do=_keys)


def _add_connect(parts: Any) -> None:
    connect = parts.add_parser("connect", help="name a SuperLink, so that runs can go there")
    connect.add_argument("name", metavar="NAME", help="what to call it")
    connect.add_argument("address", metavar="HOST:PORT", help="of the SuperLink's Control API")
    connect.add_argument("--ca", required=True, metavar="FILE", help="its CA's certificate")
    connect.set_defaults(do=_connect)


def _add_up(parts: Any, positive: Callable[[str], int]) -> None:
    up = parts.add_parser("up", help="start a SuperLink and SuperNodes on this machine")
    up.add_argument(
        "--nodes", type=positive, default=0, metavar="N", help=f"SuperNodes (default: {NODES})"
    )
    up.add_argument("--tls", action="store_true", help="encrypt, with certificates made for it")
    up.add_argument("--auth", action="store_true", help="SuperNodes need keys (brings --tls)")
    up.add_argument(
        "--data",
        nargs="+",
        action="extend",
        default=[],
        metavar="PATH",
        help="each SuperNode's own data, one per node, in place of shares of one dataset",
    )
    up.add_argument(
        "--connection", default=CONNECTION, metavar="NAME", help=f"(default: {CONNECTION})"
    )
    _add_folder(up)
    up.set_defaults(do=_up)


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", default=FOLDER, help=f"its folder (default: {FOLDER})")


def _certs(arguments: argparse.Namespace) -> int:
    from fedsuite.deploy.certificates import Certificates, make_certificates, names_of

    folder = Path(arguments.dir)
    if arguments.check:
        return _check(Certificates(folder))
    made = make_certificates(folder, arguments.name, arguments.days, arguments.force)
    print(f"{made.ca}      everyone: the SuperLink, every SuperNode, whoever submits runs")
    print(f"{made.server}  the SuperLink, for {', '.join(names_of(made.server))}")
    print(f"{made.server_key}  the SuperLink alone; secret")
    print(f"{made.ca_key}      nobody: keep it offline, to renew the certificate; secret")
    return _check(made)


def _check(files: Any) -> int:
    """Say when certificates expire; 1 if one has."""
    from fedsuite.deploy.certificates import expires

    now, status = datetime.now(UTC), 0
    for path in (files.ca, files.server):
        end = expires(path)
        word = "expires"
        if end < now:
            word, status = "EXPIRED", 1
        elif end < now + SOON:
            word = "expires soon,"
        print(f"{path} {word} {end:%Y-%m-%d %H:%M} UTC")
    return status


def _keys(arguments: argparse.Namespace) -> None:
    from fedsuite.deploy.keys import key_file, make_key, public_half, register
    from fedsuite.flower.connections import find_connection

    if arguments.register:
        find_connection(arguments.register)
    for number in range(arguments.count):
        key = key_file(Path(arguments.dir), number)
        is_new = make_key(key)
        print(f"{key}  {'made' if is_new else 'is there already'}; that SuperNode alone, secret")
        if arguments.register:
            is_new = register(public_half(key), arguments.register)
            word = "registered" if is_new else "was registered already"
            print(f"{public_half(key)}  {word} at '{arguments.register}'")
        else:
            print(f"{public_half(key)}  for the SuperLink: `flwr supernode register` lets it in")


def _connect(arguments: argparse.Namespace) -> None:
    from fedsuite.deploy.certificates import expires
    from fedsuite.flower.connections import Connection, write_connection

    if not arguments.address.rpartition(":")[2].isdigit():
        raise UserError(f"'{arguments.address}' has no port. Write HOST:PORT, e.g. 127.0.0.1:8000.")
    ca = Path(arguments.ca).expanduser().absolute()
    end = expires(ca)
    written = write_connection(Connection(arguments.name, arguments.address, ca))
    print(f"'{arguments.name}' leads to {arguments.address}; written to {written}")
    print(f"{ca} expires {end:%Y-%m-%d}")


def _up(arguments: argparse.Namespace) -> None:
    from fedsuite.deploy.lifecycle import up

    data = [Path(path).expanduser() for path in arguments.data]
    nodes = arguments.nodes or len(data) or NODES
    if data and len(data) != nodes:
        raise UserError(
            f"--data has {len(data)} paths for {nodes} SuperNodes: give one for each, in order."
        )
    for path in data:
        if not path.exists():
            raise UserError(f"--data {path} does not exist. Give each SuperNode's file or folder.")
    federation = up(
        Path(arguments.dir),
        nodes,
        print,
        tls=arguments.tls,
        auth=arguments.auth,
        data=data,
        connection=arguments.connection,
    )
    name = federation.connection
    print(
        f"run on it: fedsuite run fedavg --superlink {name}\n"
        f"end it:    fedsuite deploy down{_folder_option(arguments.dir)}"
    )


def _down(arguments: argparse.Namespace) -> None:
    from fedsuite.deploy.lifecycle import down

    down(Path(arguments.dir), print)


def _status(arguments: argparse.Namespace) -> int:
    from fedsuite.deploy.lifecycle import status

    found = status(Path(arguments.dir))
    federation = found.federation
    safety = "TLS and keys" if federation.auth else "TLS" if federation.tls else "not encrypted"
    print(
        f"SuperLink   127.0.0.1:{federation.port}, {safety}, "
        f"{'answers' if found.healthy else 'does not answer'}; connection {federation.connection}"
    )
    print(f"SuperNodes  {found.online} of {len(federation.nodes)} online")
    for name, running in found.running.items():
        print(f"{name:11} {'runs' if running else 'has ended'}, log {federation.log(name)}")
    if found.certificate_expires:
        print(f"certificate expires {found.certificate_expires:%Y-%m-%d}")
    return 0 if found.complete else 1


def _folder_option(folder: str) -> str:
    return "" if folder == FOLDER else f" --dir {folder}"
