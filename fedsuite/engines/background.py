"""A run on a background thread of this process, its log in ``run.log``: for engines to use."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from fedsuite.config import RunConfig
from fedsuite.core.settings import RunFailed, UserError
from fedsuite.engines.contract import Follow
from fedsuite.records.folder import RunFolder

STOP_SECONDS = 15.0


def run_in_background(config: RunConfig, run: Callable[[], object], follow: Follow) -> None:
    """Run on a background thread, so that this one can show the progress.

    Ctrl-C, or whatever else ends this thread, interrupts the run, which records it: a process
    that exits while a thread is inside PyTorch may abort.
    """
    errors: list[BaseException] = []
    has_ended = threading.Event()  # Ctrl-C during `join` makes Python believe the thread has ended

    def work() -> None:
        try:
            with suppress(KeyboardInterrupt):  # one that comes while the end is logged
                _log_errors(run, errors)
        finally:
            has_ended.set()

    def is_running(seconds: float) -> bool:
        return not has_ended.wait(seconds)

    thread = threading.Thread(target=work, daemon=True)
    with log_file(RunFolder.of(config)):
        thread.start()
        try:
            follow(is_running)
        except BaseException:
            interrupt(thread)
            has_ended.wait(STOP_SECONDS)
            raise
    if errors and isinstance(errors[0], UserError | RunFailed):
        raise errors[0]


def _log_errors(run: Callable[[], object], errors: list[BaseException]) -> None:
    try:
        run()
    except BaseException as error:
        errors.append(error)
        logging.getLogger("fedsuite").exception("the run ended")


def interrupt(thread: threading.Thread) -> None:
    """Raise KeyboardInterrupt in another thread, as soon as it executes Python code."""
    assert thread.ident is not None
    identifier = ctypes.c_ulong(thread.ident)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(identifier, ctypes.py_object(KeyboardInterrupt))


class LogFile(logging.FileHandler):
    """A log that is incomplete where it cannot be written, as on a full disk."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Print nothing: the terminal shows the run, which reports what goes wrong itself."""

    def close(self) -> None:
        """Close the file, also if its last lines cannot be written."""
        with suppress(OSError):
            super().close()


@contextmanager
def log_file(files: RunFolder) -> Iterator[None]:
    """Write the run's log lines to a file instead of the terminal."""
    files.make()
    logger = logging.getLogger("fedsuite")
    before = logger.level, logger.propagate
    handler = LogFile(files.log_file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.setLevel(before[0])
        logger.propagate = before[1]
