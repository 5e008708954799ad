"""What is measured: one table of metrics, read by records, suites, reports and the terminal.

A new metric is one line here, beside the code that computes it. A metric that an algorithm records
on its own needs no line: :func:`find_metric` derives its title and unit from its name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

HIGHER, LOWER, NEITHER = "higher", "lower", ""


@dataclass(frozen=True)
class Metric:
    """A field of ``history.jsonl`` or ``summary.json``.

    ``better`` is "higher", "lower" or empty; ``share`` marks a fraction that tables show in per
    cent (differences of fractions in points); ``digits`` are decimals in tables; ``in_summary`` is
    whether ``summary.json`` has it.
    """

    name: str
    title: str
    unit: str = ""
    better: str = NEITHER
    digits: int = 2
    share: bool = False
    in_summary: bool = True

    @property
    def is_time(self) -> bool:
        """Whether it is measured in seconds, which a busy machine lengthens."""
        return self.unit == "s"

    @property
    def heading(self) -> str:
        """The title with its unit, unless the unit is in the title."""
        redundant = not self.unit or self.unit in self.title.split()
        return self.title if redundant else f"{self.title} ({self.unit})"

    def in_unit(self, value: float) -> float:
        """Return a recorded value in the metric's unit."""
        return 100.0 * value if self.share else float(value)

    def with_unit(self, value: float) -> str:
        """Write a recorded value in the metric's unit, e.g. 0.8 as ``80 %``."""
        return f"{self.in_unit(value):g} {self.unit}".rstrip()

    def as_recorded(self, value: float) -> str:
        """Write a value as recorded, with the precision it has in tables."""
        return f"{value:.{self.digits + 2 if self.share else self.digits}f}"


TABLE = (
    Metric("rounds", "rounds", digits=0),
    Metric("accuracy", "accuracy", "%", HIGHER, share=True, in_summary=False),
    Metric("final_accuracy", "final accuracy", "%", HIGHER, share=True),
    Metric("best_accuracy", "best accuracy", "%", HIGHER, share=True),
    Metric("mean_last5_accuracy", "mean accuracy of the last 5 rounds", "%", HIGHER, share=True),
    Metric(
        "other_output_accuracy",
        "accuracy of the other output",
        "%",
        HIGHER,
        share=True,
        in_summary=False,
    ),
    Metric("macro_f1", "macro-F1", "%", HIGHER, share=True),
    Metric("balanced_accuracy", "balanced accuracy", "%", HIGHER, share=True),
    Metric("auc", "AUC", "%", HIGHER, share=True),
    Metric("class_accuracy", "accuracy of class", "%", HIGHER, share=True, in_summary=False),
    Metric("loss", "loss", "", LOWER, digits=3, in_summary=False),
    Metric("train_loss", "training loss", "", LOWER, digits=3, in_summary=False),
    Metric("final_loss", "final loss", "", LOWER, digits=3),
    Metric("smoothness", "smoothness", "points", LOWER, share=True),
    Metric("personal_accuracy", "personal accuracy", "%", HIGHER, share=True),
    Metric(
        "mean_last5_personal_accuracy",
        "mean personal accuracy of the last 5 rounds",
        "%",
        HIGHER,
        share=True,
    ),
    Metric("best_personal_accuracy", "best personal accuracy of a round", "%", HIGHER, share=True),
    Metric("personal_mean", "mean accuracy of clients", "%", HIGHER, share=True),
    Metric("personal_std", "std of clients' accuracy", "points", LOWER, share=True),
    Metric("personal_worst", "accuracy of the worst client", "%", HIGHER, share=True),
    Metric("personal_best", "accuracy of the best client", "%", HIGHER, share=True),
    Metric("personal_worst_tenth", "accuracy of the worst tenth", "%", HIGHER, share=True),
    Metric("personal_macro_f1", "personal macro-F1", "%", HIGHER, share=True),
    Metric("personal_balanced_accuracy", "personal balanced accuracy", "%", HIGHER, share=True),
    Metric("personal_auc", "mean AUC of clients", "%", HIGHER, share=True),
    Metric(
        "personal_class_accuracy",
        "personal accuracy of class",
        "%",
        HIGHER,
        share=True,
        in_summary=False,
    ),
    Metric("target_accuracy", "target accuracy", "%", share=True),
    Metric("rounds_to_target", "rounds to target", "rounds", LOWER, digits=1),
    Metric("compute_seconds_to_target", "compute time to target", "s", LOWER),
    Metric("compute_seconds_per_round", "compute time per round", "s", LOWER, digits=3),
    Metric("compute_seconds", "compute time", "s", LOWER, in_summary=False),
    Metric("wall_seconds", "wall-clock time", "s", LOWER),
    Metric("client_compute_seconds", "clients' compute time", "s", LOWER),
    Metric("client_cpu_seconds", "clients' CPU time", "s", LOWER, in_summary=False),
    Metric("cpu_share", "share of a core that clients had", "%", share=True, digits=0),
    Metric("upload_bytes", "upload", "bytes", LOWER, digits=0),
    Metric("download_bytes", "download", "bytes", LOWER, digits=0),
    Metric("clients", "clients", in_summary=False, digits=0),
    Metric("failed", "failed replies", "", LOWER, digits=0, in_summary=False),
    Metric("dropped_out", "clients that dropped out", digits=0, in_summary=False),
    Metric("failed_replies", "failed replies", "", LOWER, digits=0),
    Metric("missing_updates", "missing client updates", "%", LOWER, share=True),
    Metric("unscored", "unscored clients", "", LOWER, digits=0, in_summary=False),
    Metric("unscored_clients", "clients unscored at the end", "", LOWER, digits=0),
    Metric("freeloader_tpr", "freeloader TPR", "%", HIGHER, share=True),
    Metric("attacker_tpr", "attacker TPR", "%", HIGHER, share=True),
    Metric("freeloader_fpr", "freeloader FPR", "%", LOWER, share=True),
    Metric("lr", "learning rate", digits=4, in_summary=False),
)
METRICS = {metric.name: metric for metric in TABLE}
SUMMARY_METRICS = tuple(metric for metric in TABLE if metric.in_summary)
# Titles of columns in a table whose caption says that they are scores of clients.
SHORT_TITLES = {
    "personal_accuracy": "last round",
    "mean_last5_personal_accuracy": "last 5 rounds",
    "best_personal_accuracy": "best round",
    "personal_mean": "mean of clients",
    "personal_worst_tenth": "worst tenth",
    "personal_worst": "worst client",
    "personal_best": "best client",
}
# Units in which bytes are shown.
SIZES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
# The score of a run: the global model's where there is one, else the clients' own.
ROUND_SCORES = (METRICS["accuracy"], METRICS["personal_accuracy"])
FINAL_SCORES = (METRICS["final_accuracy"], METRICS["personal_accuracy"])
# With less of a core than this, clients waited for it: their seconds are too long.
LEAST_CPU_SHARE = 0.9
# What may have a target: shares of the global model, and of clients on their own samples.
PERSONAL = "personal-"
TARGET_METRICS = (
    "accuracy",
    "macro-f1",
    "balanced-accuracy",
    "auc",
    *(
        f"{PERSONAL}{name}"
        for name in "accuracy mean worst-tenth macro-f1 balanced-accuracy auc".split()
    ),
)
# Measured only where target-accuracy is set and reached.
TO_TARGET = (METRICS["rounds_to_target"], METRICS["compute_seconds_to_target"])


def find_metric(name: str) -> Metric:
    """Return a metric by its field; ``a.b`` is the part b of the field a."""
    field, _, part = name.partition(".")
    metric = METRICS.get(field) or _derive(field)
    return replace(metric, name=name, title=f"{metric.title} {part}") if part else metric


def _derive(name: str) -> Metric:
    """Describe a metric by its name alone."""
    words = name.replace("_", " ").replace("-", " ").strip()
    if name.endswith("accuracy"):
        return Metric(name, words, "%", HIGHER, share=True)
    if name.endswith("seconds"):
        return Metric(name, f"{words.removesuffix('seconds')}time".strip(), "s", LOWER, digits=3)
    if name.endswith("bytes"):
        return Metric(name, words, "bytes", LOWER, digits=0)
    return Metric(name, words, "", LOWER if name.endswith("loss") else NEITHER, digits=3)
