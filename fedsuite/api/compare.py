"""Compare runs; ``fedsuite compare`` calls this."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fedsuite.records.folder import DEFAULT_RESULTS

if TYPE_CHECKING:
    from fedsuite.report.comparison_result import Compared


def compare(
    *runs: str | os.PathLike[str],
    metric: str = "",
    against: str = "",
    by: str = "",
    results_dir: str | os.PathLike[str] = DEFAULT_RESULTS,
) -> Compared:
    """Test whether a gain is more than noise, paired over seeds.

    ``runs`` are runs, suites or folders of runs, also by name. ``metric`` is a field of the
    summary (by default ``final_accuracy``, or the suite's), ``against`` the method that is the
    reference (by default ``fedavg``, or the first). ``by`` compares the values of a setting, or of
    a suite's label, instead of methods: ``by="lr"``.
    """
    from fedsuite.report.compare import compare

    names = [os.fspath(run) for run in runs]
    return compare(names, os.fspath(results_dir), metric, against, by)
