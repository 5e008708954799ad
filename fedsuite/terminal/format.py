"""Durations, sizes and metrics as text."""

from __future__ import annotations

from fedsuite.metrics import SIZES, Metric


def duration(seconds: float) -> str:
    """Write a duration in hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def size(count: float) -> str:
    """Write a number of bytes."""
    unit = next((unit for unit, least in SIZES.items() if count < 1000 * least), "TB")
    return f"{count / SIZES[unit]:.3g} {unit}"


def measured(metric: Metric, value: float) -> str:
    """Write a metric's title and a recorded value with its unit; shares stay fractions."""
    if metric.unit == "bytes":
        return f"{metric.title} {size(value)}"
    unit = "" if metric.share or metric.unit in metric.title.split() else metric.unit
    return f"{metric.title} {value:,.4g} {unit}".rstrip()
