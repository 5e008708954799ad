"""How command lines are parsed: options of several values, plain help, errors in one line."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Collection, Sequence
from typing import Any, cast, get_type_hints

import click
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from fedsuite.core.processes import INTERRUPTED, TERMINATED, Terminated
from fedsuite.core.settings import invalid, shown, suggest
from fedsuite.engines.table import MAX_NODES

MAX_DIGITS = 9
SEVERAL = "..."  # ends the metavar of an option that takes several values


class Command(TyperCommand):
    """A command whose options may take several values: ``--only A B`` is ``--only A --only B``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line after repeating such options for each of their values."""
        names: set[str] = set()
        for param in self.params:
            if isinstance(param, click.Option) and (param.metavar or "").endswith(SEVERAL):
                names |= {*param.opts}
        try:
            return super().parse_args(ctx, repeat_options(args, names))
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help as Click does; Typer's would import Rich for it, and leave its markup."""
        params = self.get_params(ctx)
        arguments = [p for p in params if isinstance(p, TyperArgument) and not p.hidden]
        options = [p for p in params if isinstance(p, click.Option)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(
                    [(p.make_metavar(ctx), self._declared_help(p)) for p in arguments]
                )
        with formatter.section("Options"):
            records = [click.Option.get_help_record(option, ctx) for option in options]
            formatter.write_dl([record for record in records if record is not None])

    def _declared_help(self, argument: TyperArgument) -> str:
        """Return an argument's help from its function: Click 8.5 loses what Typer sets."""
        function = inspect.unwrap(self.callback) if self.callback else None
        hint = get_type_hints(function, include_extras=True).get(argument.name or "")
        return next((info.help for info in getattr(hint, "__metadata__", ()) if info.help), "")


class Group(TyperGroup):
    """Commands under one name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; name the nearest one if there is none of that name."""
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            ctx.fail(f"Unknown command '{args[0]}'. {suggest(args[0], _visible(self))}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an interrupt ends it with the status shells expect."""
        try:
            return super().invoke(ctx)
        except Terminated:
            print("fedsuite: terminated", file=sys.stderr)
            return TERMINATED
        except KeyboardInterrupt:
            print("fedsuite: interrupted", file=sys.stderr)
            return INTERRUPTED


def repeat_options(words: Sequence[str], names: Collection[str]) -> list[str]:
    """Write each of these options again before every further value, up to the next option."""
    repeated: list[str] = []
    option, values = "", 0
    for index, word in enumerate(words):
        if word == "--":
            return [*repeated, *words[index:]]
        if word.startswith("-") and not (option and values == 0):
            option, values = (word, 0) if word in names else ("", 0)
            repeated.append(word)
            continue
        if option:
            repeated += [option] if values else []
            values += 1
        repeated.append(word)
    return repeated


def usage_sentence(error: click.ClickException) -> str:
    """Return in one line what is wrong with a command line, and where its help is."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    text = error.format_message()
    if isinstance(error, click.NoSuchOption):
        near = error.possibilities
        text = f"Unknown option '{error.option_name}'."
        text += f" Did you mean '{sorted(near)[0]}'?" if near else ""
    elif isinstance(error, click.MissingParameter) and error.param is not None:
        text = f"Missing {_spelling(error.param, context)}."
    elif text == "Missing command." and context is not None:
        commands = ", ".join(_visible(cast(click.Group, context.command)))
        text = f"Missing command. Choices: {commands}."
    path = context.command_path if context else "fedsuite"
    return f"{text.rstrip('.?')}{'?' if text.endswith('?') else '.'} See `{path} --help`."


def positive(text: str) -> int:
    """Read a whole number of at least 1."""
    return _whole_number(text, 1)


def _whole_number(text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit() and (text.strip("0") or not least)):
        raise typer.BadParameter(f"'{shown(text)}' is not a whole number of at least {least}.")
    if len(text) > MAX_DIGITS:
        raise typer.BadParameter(f"'{shown(text)}' is too large.")
    return int(text)


def whole_number(text: str) -> int:
    """Read a whole number of at least 0."""
    return _whole_number(text, 0)


def node_count(text: str) -> int:
    """Read how many nodes there are to be, each of which may be a process of its own."""
    count = positive(text)
    if count > MAX_NODES:
        raise invalid("--nodes", text, f"at most {MAX_NODES} are possible.")
    return count


def share(text: str) -> float:
    """Read a number of at least 0."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise typer.BadParameter(f"'{shown(text)}' is not a number of at least 0.")
    return number


def _spelling(param: click.Parameter, context: click.Context | None) -> str:
    if isinstance(param, click.Argument) and context is not None:
        return param.make_metavar(context)
    return f"option '{param.opts[0]}'"


def _visible(group: click.Group) -> list[str]:
    return [name for name, command in group.commands.items() if not command.hidden]
