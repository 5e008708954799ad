"""The ``fedsuite`` command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, cast

import click
import typer

from fedsuite.cli import deploy, listing, model, partition, publish, report, run, show, suite
from fedsuite.cli.parsing import Group, usage_sentence
from fedsuite.core.files import write_problem
from fedsuite.core.imports import collect_rarely
from fedsuite.core.processes import interrupted_once
from fedsuite.core.protocol import LINE_MARK
from fedsuite.core.settings import RunFailed, UserError

EXAMPLES = """\
\b
Examples:
  fedsuite run fedavg
  fedsuite run fedprox fedprox.zeta=0.01 dataset=fashion-mnist data-root=../data num-rounds=50
  fedsuite run local partition=pathological --engine inline --name alone
  fedsuite resume alone
  fedsuite deploy up --nodes 4 --auth
  fedsuite run fedavg --superlink local-deployment
"""

app = typer.Typer(
    cls=Group,
    help="Federated-learning papers and their baselines as one Flower app.",
    epilog=EXAMPLES,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for _group in (run, suite, show, listing, model, report, publish, partition):
    app.add_typer(_group.commands)
app.add_typer(deploy.commands, name="deploy")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    words = sys.argv[1:] if argv is None else list(argv)
    if argv is None:
        collect_rarely()
    try:
        with interrupted_once(restore=argv is not None):
            status = _run(words)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Whoever read the output has seen enough. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(words: Sequence[str]) -> int:
    """Run a command; print what is wrong with it, its run or the disk as a sentence."""
    try:
        return int(command().main([*words], prog_name="fedsuite", standalone_mode=False) or 0)
    except UserError as error:
        print(f"fedsuite: {error}", file=sys.stderr)
        return 2
    except RunFailed as error:
        notes = [f"{LINE_MARK}{note}" for note in getattr(error, "__notes__", ())]
        print("\n".join([str(error), *notes]), file=sys.stderr)
        return 1
    except click.ClickException as error:
        print(f"fedsuite: {usage_sentence(error)}", file=sys.stderr)
        return 2
    except OSError as error:
        if not (problem := write_problem(error)):
            raise
        print(f"fedsuite: {problem}.", file=sys.stderr)
        return 1


def command() -> click.Group:
    """Return the command line as Click knows it."""
    return cast(click.Group, typer.main.get_command(app))


def _print_version(asked: bool) -> None:
    if asked:
        import fedsuite
        from fedsuite.records.provenance import versions

        found = versions() | {"fedsuite": fedsuite.__version__}
        print("\n".join(f"{name} {version}" for name, version in found.items()))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the versions and exit."
        ),
    ] = False,
) -> None:
    """Read the options that stand before a command."""
