"""Lists of trackers as users write them."""

from __future__ import annotations

from fedsuite.core.settings import invalid, suggest

NO_TRACKER = "none"
MLFLOW, TENSORBOARD, WANDB = TRACKERS = ("mlflow", "tensorboard", "wandb")


def parse_trackers(text: str) -> tuple[str, ...]:
    """Read ``"mlflow, wandb"`` as both; ``"none"`` is none."""
    if text == NO_TRACKER:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    unknown = next((name for name in names if name not in TRACKERS), None)
    if unknown == NO_TRACKER:
        raise invalid("tracking", text, "'none' stands alone. Leave it or the trackers out.")
    if unknown is not None:
        several = " Several are separated by commas."
        raise invalid("tracking", text, suggest(unknown, (NO_TRACKER, *TRACKERS)) + several)
    return names
