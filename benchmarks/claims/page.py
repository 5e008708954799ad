"""The page of claims: one table of all of them, then paper by paper, all of it from the rows."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.claims.rows import LATE_COUPLING, OTHER_OUTPUT, Row, by_seed
from benchmarks.claims.rules import Claim, Finding, Labels, Verdict, judge, read_claims, scale_of
from benchmarks.report import table
from fedsuite.metrics import METRICS
from fedsuite.report.statistics import deviation, mean
from fedsuite.suites.paper_numbers import paper_numbers

NONE = "–"
OUR_TITLES = {
    LATE_COUPLING: "rank correlation, second half of the rounds",
    OTHER_OUTPUT: "accuracy of the other output (%)",
}
ReadRows = Callable[[str], Sequence[Row]]


@dataclass(frozen=True)
class Page:
    """The claims of a file and the rows they are judged by."""

    document: Mapping[str, Any]
    read: ReadRows

    @property
    def findings(self) -> list[Finding]:
        """Every claim, judged."""
        return [judge(claim, self.read(claim.suite)) for claim in read_claims(self.document)]

    def text(self) -> str:
        """Return the whole page."""
        findings = [f for f in self.findings if not f.claim.afterwards]
        afterwards = [f for f in self.findings if f.claim.afterwards]
        parts = [self.document["title"], self.document["introduction"], summary_table(findings)]
        parts += ["## All claims", self.document["rule"], claims_table(findings)]
        if afterwards:
            parts += ["## Readings tried afterwards", self.document["afterwards"]]
            parts += [claims_table(afterwards, "interval")]
        for paper in self.document["paper"]:
            parts += self._section(paper, [f for f in findings if f.claim.paper == paper["name"]])
        parts += ["## Where the numbers come from", self.document["origin"], self._origin()]
        return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"

    def _section(self, paper: Mapping[str, Any], findings: Sequence[Finding]) -> list[str]:
        parts = [f"## {paper['name']}", paper.get("about", "")]
        if paper.get("figure") and any(f.ours is not None for f in findings):
            parts.append(f"![{paper['caption']}](images/{paper['figure']})\n\n{paper['caption']}")
        for block in self.document.get("table", []):
            if block["paper"] == paper["name"] and self.read(block["suite"]):
                parts += [f"### {block['title']}", block.get("about", "")]
                parts += [results_table(block, self.read(block["suite"]))]
                parts += [f"```sh\n{suite_command(block['suite'], block.get('only', []))}\n```"]
        remarks = [f for f in findings if f.claim.notes or f.claim.cannot]
        if remarks:
            parts += [
                f"### {paper['name']}: what does not show, and what is left",
                _remarks(remarks),
            ]
        return parts

    def _origin(self) -> str:
        names = dict.fromkeys(c.suite for c in read_claims(self.document) if c.suite)
        lines = [line for name in names for line in [_origin_line(name, self.read(name))] if line]
        return table(("rows", "runs", "seeds", "engine", "machine", "versions"), lines)


def summary_table(findings: Sequence[Finding]) -> str:
    """Count the verdicts of each paper."""
    papers = list(dict.fromkeys(finding.claim.paper for finding in findings))
    counts = {p: Counter(f.verdict for f in findings if f.claim.paper == p) for p in papers}
    used = [verdict for verdict in Verdict if any(verdict in count for count in counts.values())]
    rows = [[p, *(str(counts[p][verdict] or NONE) for verdict in used)] for p in papers]
    total = [str(sum(counts[p][verdict] for p in papers)) for verdict in used]
    return table(("claims of", *used), [*rows, ["all four", *total]])


def summary_sentence(findings: Sequence[Finding]) -> str:
    """Say in a sentence how many claims have which verdict, for the front of the README."""
    counted = [finding for finding in findings if not finding.claim.afterwards]
    counts = Counter(finding.verdict for finding in counted)
    judged = (Verdict.SHOWN, Verdict.NOT_SHOWN, Verdict.OPPOSITE)
    parts = [f"{counts[verdict]} {verdict}" for verdict in judged]
    parts += [f"{counts[v]} {v}" for v in Verdict if v not in judged and counts[v]]
    return f"{len(counted)} claims of the four papers: {', '.join(parts)}"


def claims_table(findings: Iterable[Finding], last: str = "verdict") -> str:
    """Write one line per claim; ``last`` heads what follows from the interval."""
    rows = [
        [
            f.claim.paper,
            f.claim.where,
            f.claim.says,
            printed(f),
            measured(f),
            interval(f),
            _outcome(f),
        ]
        for f in findings
    ]
    lines = table(("paper", "where", "claim", "paper's", "here", "in favour", last), rows)
    return lines.replace("---:", "---")


def _outcome(finding: Finding) -> str:
    """Return the verdict; of a reading tried afterwards only where its interval lies."""
    sides = {Verdict.SHOWN: "above zero", Verdict.OPPOSITE: "below zero"}
    if finding.claim.afterwards:
        return sides.get(finding.verdict, "includes zero")
    return f"**{finding.verdict}**" if finding.verdict is Verdict.SHOWN else str(finding.verdict)


def printed(finding: Finding) -> str:
    """Return what the paper prints for both sides of a claim."""
    claim = finding.claim
    if claim.printed or claim.cannot or claim.than_metric:
        return claim.printed or NONE
    against = finding.against or (claim.than[0] if claim.than else {})
    sides = [claim.ours, {**claim.ours, **against}] if against else [claim.ours]
    known = [_paper_number(claim, side) for side in sides]
    return " / ".join(known) if any(number != NONE for number in known) else NONE


def measured(finding: Finding) -> str:
    """Return the means over seeds of both sides of a claim."""
    digits, scale = _digits(finding.claim.metric), scale_of(finding.claim.metric)
    sides = [s for s in (finding.ours, finding.other) if s is not None]
    if not sides:
        return NONE
    text = " / ".join(f"{side * scale:.{digits}f}" for side in sides)
    named = finding.against.get("algo") if len(finding.claim.than) > 1 else None
    return f"{text} ({named})" if named else text


def interval(finding: Finding) -> str:
    """Return the difference in the claim's favour, or the level, with its interval."""
    if finding.interval is None:
        return NONE
    claim, found = finding.claim, finding.interval
    digits, scale = _digits(claim.metric), scale_of(claim.metric)
    sign = "" if claim.bounded else "+"
    text = f"{found.mean * scale:{sign}.{digits}f}"
    if found.low is None or found.high is None:
        return f"{text} (all seeds alike)"
    low, high = (f"{end * scale:{sign}.{digits}f}" for end in (found.low, found.high))
    return f"{text} ({low} to {high})"


def results_table(block: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Write mean and deviation over seeds of some metrics, beside the paper's numbers."""
    fixed, names = block.get("labels", {}), list(dict.fromkeys(row[block["rows"]] for row in rows))
    header, lines = [block["rows"]], [[name] for name in names]
    for column in block["columns"]:
        labels, metric = {**fixed, **column["labels"]}, column["metric"]
        title = OUR_TITLES.get(metric) or _title(metric)
        cells = [_cell(rows, {block["rows"]: name, **labels}, metric) for name in names]
        header.append(f"{column['head']}: {title}" if column.get("head") else title)
        paper = [
            _number(block["source"], metric, {block["rows"]: name, **labels})
            for name in names
            if block.get("source")
        ]
        for line, cell in zip(lines, cells, strict=True):
            line.append(cell)
        if any(number != NONE for number in paper):
            header.append("paper")
            for line, number in zip(lines, paper, strict=True):
                line.append(number)
    kept = [line for line in lines if any(cell != NONE for cell in line[1:])]
    return table(header, kept)


def suite_command(suite: str, only: Sequence[str]) -> str:
    """Return the command that makes the runs."""
    words = ["fedsuite", "suite", suite, *(w for pair in only for w in ("--only", pair))]
    return shlex.join([*words, "--data-root", "DIR"])


def _remarks(findings: Iterable[Finding]) -> str:
    lines = []
    for finding in findings:
        claim = finding.claim
        lines.append(f"- *{claim.where}, {claim.says}*: {claim.cannot or claim.notes}")
    return "\n".join(lines)


def _cell(rows: Sequence[Row], labels: Labels, metric: str) -> str:
    values = list(by_seed(rows, labels, metric).values())
    if not values:
        return NONE
    scale, digits = scale_of(metric), _digits(metric)
    spread, text = deviation(values), f"{mean(values) * scale:.{digits}f}"
    return text if spread is None else f"{text} ± {spread * scale:.{digits}f}"


def _paper_number(claim: Claim, labels: Labels) -> str:
    place = claim.where.partition(",")[0]
    return _number(f"{claim.paper}, {place}", claim.metric, labels)


def _number(source: str, metric: str, labels: Labels) -> str:
    for number in paper_numbers():
        same = {name: str(labels.get(name)) == str(v) for name, v in number.labels.items()}
        if number.source == source and number.metric == metric and all(same.values()):
            return f"{number.value:.{_digits(metric)}f}"
    return NONE


def _title(metric: str) -> str:
    known = METRICS[metric]
    return f"{known.title} ({known.unit})" if known.unit else known.title


def _digits(metric: str) -> int:
    return {"rounds": 0, "rounds_to_target": 1}.get(metric, 2)


def _origin_line(name: str, rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    distinct = {key: sorted({row[key] for row in rows}) for key in ("seed", "engine", "machine")}
    versions = sorted({row["versions"] for row in rows})
    seeds, engine, machine = (", ".join(values) for values in distinct.values())
    link = f"[{name}.csv](runs/{name}.csv)"
    return [link, str(len(rows)), seeds, engine, machine, "; ".join(versions)]
