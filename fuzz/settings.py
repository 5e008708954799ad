"""Are settings refused with a sentence, or accepted for good?

What is accepted must survive every way that settings travel: a run's record, the message to a node,
Flower's run-config, and the command that repeats the run.
"""

from __future__ import annotations

import shlex
import tomllib
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tomli_w

from fedsuite.cli.run import read_settings
from fedsuite.config import RunConfig, all_defaults, from_json, parse
from fedsuite.core.settings import UserError
from fuzz.draws import Case

MAX_SENTENCE = 2000
UNSAID = ("run-name", "results-dir", "resume")  # a command does not repeat where its run was
OPTION = "--superlink"


@dataclass(frozen=True)
class Checked:
    """What became of a case: its settings if they were accepted, and what is wrong, if anything."""

    case: Case
    config: RunConfig | None = None
    failure: str = ""


def check(case: Case) -> Checked:
    """Parse a case's settings as ``fedsuite run`` does, and send what is accepted all ways."""
    try:
        config = parse(case.values, idle="refuse")
    except UserError as error:
        return Checked(case, failure=_no_sentence(str(error)))
    except Exception:
        return Checked(case, failure=traceback.format_exc())
    for name, travel in WAYS.items():
        try:
            arrived = travel(config)
        except Exception:
            return Checked(case, config, f"accepted, but not {name}: {traceback.format_exc()}")
        if arrived != config:
            lost = sorted(set(arrived.flat().items()) ^ set(config.flat().items()), key=str)
            return Checked(case, config, f"accepted, but changed {name}: {lost}")
    return Checked(case, config)


def _no_sentence(text: str) -> str:
    """Say what keeps a refusal from being a sentence; empty if nothing does."""
    if not text.endswith((".", "?")) or "\n" in text or len(text) > MAX_SENTENCE:
        return f"refused, but not with a sentence: {text[:MAX_SENTENCE]!r}"
    return ""


def _by_command(config: RunConfig) -> RunConfig:
    words = shlex.split(config.command())
    link = words.index(OPTION) if OPTION in words else len(words)
    values: dict[str, Any] = read_settings([], words[3:link], here=False)
    values["superlink"] = "".join(words[link + 1 :])
    kept = {key: value for key, value in config.flat().items() if key in UNSAID}
    return parse(values | kept | {"algo": words[2]}, idle="refuse")


def _by_flower(config: RunConfig) -> RunConfig:
    carried = tomllib.loads(tomli_w.dumps(config.flat()))
    return parse(all_defaults() | carried, foreign="default", idle="reset")


WAYS: dict[str, Callable[[RunConfig], RunConfig]] = {
    "by its record": lambda config: parse(config.flat()),
    "by a message": lambda config: from_json(config.to_json()),
    "by Flower's run-config": _by_flower,
    "by its command": _by_command,
}
