"""A figure per paper: each claim's two sides here, beside what the paper prints for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.claims.rules import Finding, Verdict, scale_of
from fedsuite.core.files import write_atomically

COLOURS = {
    Verdict.SHOWN: "#1b7f3b",
    Verdict.OPPOSITE: "#b3261e",
    Verdict.NOT_SHOWN: "#5f6368",
}


def draw(paper: Mapping[str, Any], findings: Sequence[Finding], file: Path) -> None:
    """Draw the difference of every claim in per cent that was judged, with its interval."""
    from io import BytesIO

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [
        f
        for f in findings
        if f.claim.paper == paper["name"]
        and not f.claim.afterwards
        and f.interval
        and not f.claim.bounded
        and scale_of(f.claim.metric) == 100.0
    ]
    if not shown:
        return
    with plt.rc_context({"svg.hashsalt": "claims", "svg.fonttype": "none", "font.size": 9}):
        figure, axes = plt.subplots(figsize=(7.2, 0.9 + 0.34 * len(shown)), layout="constrained")
        for height, finding in enumerate(reversed(shown)):
            found = finding.interval
            assert found is not None
            low = found.mean if found.low is None else found.low
            high = found.mean if found.high is None else found.high
            colour = COLOURS[finding.verdict]
            axes.plot([100 * low, 100 * high], [height, height], color=colour, linewidth=2)
            axes.plot(100 * found.mean, height, "o", color=colour)
            claimed = claimed_difference(finding)
            if claimed is not None:
                axes.plot(claimed, height, "D", markerfacecolor="none", color="black")
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(shown)), [_label(f) for f in reversed(shown)])
        axes.set_xlabel("difference in the claim's favour (percentage points)")
        axes.spines[["top", "right"]].set_visible(False)
        target = BytesIO()
        figure.savefig(target, format="svg", metadata={"Date": None})
        plt.close(figure)
    write_atomically(file, target.getvalue())


def claimed_difference(finding: Finding) -> float | None:
    """Return the difference that the paper prints, in the claim's favour."""
    from benchmarks.claims.page import NONE, printed

    sides = printed(finding).split(" / ")
    if len(sides) != 2 or NONE in sides:
        return None
    return float(sides[0]) - float(sides[1])


def _label(finding: Finding) -> str:
    return f"{finding.claim.where}: {finding.claim.says}"
