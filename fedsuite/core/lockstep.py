"""Jobs that run in turns, so that what all of them ask for can be computed at once.

Each job is ordinary code in a greenlet of its own. Where it asks, it is suspended until every other
job has asked too or has ended; then all questions are answered together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from greenlet import getcurrent, greenlet

Question = TypeVar("Question")
Answer = TypeVar("Answer")


@dataclass
class Outcome:
    """What became of a job: its value or what it raised, and how many questions it asked."""

    value: Any = None
    error: Exception | None = None
    asked: int = 0


class Lockstep(Generic[Question, Answer]):
    """Answers the questions of all jobs together; an answer that is an exception is raised."""

    def __init__(self, answer: Callable[[list[Question]], Sequence[Answer | Exception]]) -> None:
        self._answer = answer
        self._hub: greenlet | None = None

    def ask(self, question: Question) -> Answer:
        """Return the answer; outside of :meth:`run`, at once."""
        if self._hub is not None:
            return self._hub.switch(question)
        (answer,) = self._answer([question])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run(self, jobs: Iterable[Callable[[], Any]]) -> list[Outcome]:
        """Run jobs to their ends; one that raises does not disturb the others.

        What is not an ``Exception``, such as an interrupt, ends all of them.
        """
        turns = [_Turn(job) for job in jobs]
        self._hub = getcurrent()
        try:
            for turn in turns:
                turn.advance(turn.job.switch)
            while waiting := [turn for turn in turns if not turn.job.dead]:
                answers = self._answer([turn.question for turn in waiting])
                for turn, answer in zip(waiting, answers, strict=True):
                    failed = isinstance(answer, Exception)
                    turn.advance(turn.job.throw if failed else turn.job.switch, answer)
        finally:
            self._hub = None
            for turn in turns:
                if turn.job:  # started and not ended: let it leave its ``with`` and ``try`` blocks
                    turn.job.throw()
        return [turn.outcome for turn in turns]


class _Turn:
    """A job between two of its questions."""

    def __init__(self, job: Callable[[], Any]) -> None:
        self.job, self.outcome = greenlet(job), Outcome()
        self.job.gr_context = copy_context()
        self.question: Any = None

    def advance(self, resume: Callable[..., Any], *values: Any) -> None:
        """Let the job continue up to its next question or its end."""
        try:
            found = resume(*values)
        except Exception as error:
            self.outcome.error = error
            return
        if self.job.dead:
            self.outcome.value = found
        else:
            self.question = found
            self.outcome.asked += 1
