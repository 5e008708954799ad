"""An algorithm that takes its time before the first round, for tests of what interrupts it.

``SLOW_DATA`` says where: in the command's own ``main`` thread, or in the run's ``other`` one.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from clients.base import Client
from fedsuite.registry import Algorithm
from strategies.base import BaseStrategy


class Slow(BaseStrategy):
    """Is checked against the model for a minute."""

    @classmethod
    def misfit(cls, params: Any, has_statistics: bool, plain_steps: bool = True) -> str:
        is_main = threading.current_thread() is threading.main_thread()
        if os.environ["SLOW_DATA"] == ("main" if is_main else "other"):
            Path("preparing").touch()
            for _ in range(6000):
                time.sleep(0.01)
        return ""


ALGORITHM = Algorithm(Slow, Client)
