"""Jobs in turns: questions are answered together, and a job that fails fails alone."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from fedsuite.core.lockstep import Lockstep

Job = Callable[[], Any]


class Doubling:
    """Doubles numbers and notes which it was asked together; 13 it refuses."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.steps: Lockstep[int, int] = Lockstep(self.answer)

    def answer(self, numbers: list[int]) -> list[int | Exception]:
        self.asked.append(numbers)
        return [ValueError("thirteen") if n == 13 else 2 * n for n in numbers]

    def job(self, *numbers: int) -> Job:
        """A job that asks for these and returns the answers."""
        return lambda: [self.steps.ask(number) for number in numbers]


def test_questions_are_asked_together_and_whoever_ends_falls_out() -> None:
    doubling = Doubling()
    outcomes = doubling.steps.run([doubling.job(1, 2, 3), doubling.job(4), doubling.job()])
    assert [outcome.value for outcome in outcomes] == [[2, 4, 6], [8], []]
    assert [outcome.asked for outcome in outcomes] == [3, 1, 0]
    assert doubling.asked == [[1, 4], [2], [3]]


def test_outside_of_a_run_a_question_is_answered_at_once() -> None:
    doubling = Doubling()
    assert doubling.steps.ask(5) == 10
    with pytest.raises(ValueError, match="thirteen"):
        doubling.steps.ask(13)


def test_a_job_that_raises_or_is_refused_does_not_disturb_the_others() -> None:
    doubling = Doubling()

    def raises() -> None:
        doubling.steps.ask(1)
        raise RuntimeError("mine")

    def survives() -> int:
        try:
            return doubling.steps.ask(13)
        except ValueError:
            return doubling.steps.ask(7)

    jobs = [doubling.job(1, 2), raises, doubling.job(13, 1), survives]
    good, bad, refused, caught = doubling.steps.run(jobs)
    assert (good.value, good.error) == ([2, 4], None)
    assert isinstance(bad.error, RuntimeError) and isinstance(refused.error, ValueError)
    assert caught.value == 14


def test_an_interrupt_ends_all_jobs_and_they_clean_up() -> None:
    doubling, left = Doubling(), []

    def waits() -> None:
        try:
            doubling.steps.ask(1)
        finally:
            left.append("waits")

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        doubling.steps.run([waits, interrupted])
    assert left == ["waits"]
    assert doubling.steps.ask(4) == 8


def test_jobs_see_the_context_in_which_they_were_started() -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)
    variable.set(3)
    assert Doubling().steps.run([variable.get])[0].value == 3
