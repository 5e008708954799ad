"""The commands of real deployment: ``fedsuite deploy certs | keys | connect | up | down | ...``."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsuite.cli.options import AsJson, print_json
from fedsuite.cli.parsing import Command, Group, node_count, positive
from fedsuite.core.settings import UserError

FOLDER = ".fedsuite-deploy"
CONNECTION = "local-deployment"
NODES = 4
DAYS = 365
SOON = timedelta(days=30)

commands = typer.Typer(cls=Group, help="Certificates, keys, and a federation on this machine.")
Folder = Annotated[
    str,
    typer.Option(
        "--dir",
        metavar="DIR",
        help=f"the federation's folder (default: {FOLDER})",
        show_default=False,
    ),
]


@commands.command(cls=Command)
def certs(
    folder: Annotated[
        str,
        typer.Option(
            "--dir", metavar="DIR", help="folder to write (default: certs)", show_default=False
        ),
    ] = "certs",
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST...",
            help="DNS names or IP addresses by which SuperNodes call the SuperLink",
            show_default=False,
        ),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=positive,
            help=f"days of validity (default: {DAYS})",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="overwrite files, the CA too")] = False,
    check: Annotated[bool, typer.Option("--check", help="only print when they expire")] = False,
) -> int:
    """Make a CA and the SuperLink's certificate."""
    from fedsuite.deploy.certificates import Certificates, make_certificates, names_of

    if check:
        return _check(Certificates(Path(folder)))
    made = make_certificates(Path(folder), name or [], days or DAYS, force)
    print(f"{made.ca}      everyone: the SuperLink, every SuperNode, whoever submits runs")
    print(f"{made.server}  the SuperLink, for {', '.join(names_of(made.server))}")
    print(f"{made.server_key}  the SuperLink alone; secret")
    print(f"{made.ca_key}      nobody: keep it offline, to renew the certificate; secret")
    return _check(made)


@commands.command(cls=Command)
def keys(
    count: Annotated[int, typer.Argument(metavar="N", parser=positive, help="number of keys")],
    folder: Annotated[
        str,
        typer.Option(
            "--dir", metavar="DIR", help="folder to write (default: keys)", show_default=False
        ),
    ] = "keys",
    connection: Annotated[
        str,
        typer.Option(
            "--register",
            metavar="NAME",
            help="also register them at this SuperLink connection",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Make keys for SuperNodes."""
    from fedsuite.deploy.keys import key_file, make_key, public_half, register
    from fedsuite.flower.connections import find_connection

    if connection:
        find_connection(connection)
    for number in range(count):
        key = key_file(Path(folder), number)
        is_new = make_key(key)
        print(f"{key}  {'made' if is_new else 'is there already'}; that SuperNode alone, secret")
        if connection:
            is_new = register(public_half(key), connection)
            word = "registered" if is_new else "was registered already"
            print(f"{public_half(key)}  {word} at '{connection}'")
        else:
            print(f"{public_half(key)}  for the SuperLink: `flwr supernode register` lets it in")


@commands.command(cls=Command)
def connect(
    name: Annotated[str, typer.Argument(metavar="NAME", help="name of the connection")],
    address: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="address of the SuperLink's Control API")
    ],
    ca: Annotated[str, typer.Option(metavar="FILE", help="certificate of its CA")],
) -> None:
    """Save a SuperLink's address under a name, to submit runs to it."""
    from fedsuite.deploy.certificates import expires
    from fedsuite.flower.connections import Connection, write_connection

    if not address.rpartition(":")[2].isdigit():
        raise UserError(
            f"invalid address '{address}': it has no port. Write HOST:PORT, e.g. 127.0.0.1:8000."
        )
    certificate = Path(ca).expanduser().absolute()
    end = expires(certificate)
    written = write_connection(Connection(name, address, certificate))
    print(f"'{name}' leads to {address}; written to {written}")
    print(f"{certificate} expires {end:%Y-%m-%d}")


@commands.command(cls=Command)
def up(
    nodes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=node_count,
            help=f"number of SuperNodes (default: {NODES}, or one per --data)",
            show_default=False,
        ),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="encrypt, with certificates made for it")
    ] = False,
    auth: Annotated[
        bool, typer.Option("--auth", help="SuperNodes need keys (implies --tls)")
    ] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH...",
            help="each SuperNode's own data, one per node, instead of partitions of one dataset",
            show_default=False,
        ),
    ] = None,
    connection: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"name of the connection (default: {CONNECTION})",
            show_default=False,
        ),
    ] = CONNECTION,
    folder: Folder = FOLDER,
) -> None:
    """Start a SuperLink and SuperNodes on this machine."""
    from fedsuite.core.text import counted
    from fedsuite.deploy.up_down_status import run_command, up

    paths = [Path(path).expanduser() for path in data or []]
    count = nodes or len(paths) or NODES
    if paths and len(paths) != count:
        raise UserError(
            f"invalid --data: {counted(len(paths), 'path')} for {counted(count, 'SuperNode')}. "
            "Give one each, in order."
        )
    for path in paths:
        if not path.exists():
            raise UserError(
                f"invalid value '{path}' for --data: it does not exist. Give each SuperNode's "
                "file or folder."
            )
    command, columns = run_command(connection, paths)
    up(Path(folder), count, print, tls=tls, auth=auth, data=paths, connection=connection)
    print(f"run on it: {command}")
    if columns:
        print(f"           COLUMN is what is to be learned: {', '.join(columns)}")
    print(f"end it:    fedsuite deploy down{_folder_option(folder)}")


@commands.command(cls=Command)
def down(folder: Folder = FOLDER) -> None:
    """Stop the local federation."""
    from fedsuite.deploy.up_down_status import down

    down(Path(folder), print)


@commands.command(cls=Command)
def status(as_json: AsJson = False, folder: Folder = FOLDER) -> int:
    """Show the state of the local federation."""
    from fedsuite.deploy.up_down_status import status

    found = status(Path(folder))
    federation = found.federation
    if as_json:
        print_json(found.document())
        return 0 if found.complete else 1
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


def _check(files: Any) -> int:
    """Print when certificates expire; return 1 if one has."""
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


def _folder_option(folder: str) -> str:
    return "" if folder == FOLDER else f" --dir {shlex.quote(folder)}"
