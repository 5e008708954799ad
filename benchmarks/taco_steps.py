"""CPU time of a local step of TACO's baselines, at the small scale of its Table V.

``python -m benchmarks.taco_steps --data-root DIR`` prints a table for Fashion-MNIST (lenet, batches
of 16) and one for adult (MLP, batches of 64). Each method takes turns with FedAvg.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import steps_table
from benchmarks.steps import step_costs
from benchmarks.workloads import W1, W2

METHODS = ("fedavg", "fedprox", "foolsgold", "scaffold", "stem", "fedacg", "taco")
SETTINGS = ((W1, 16, 20), (W2, 64, 100))
SECONDS = 4.0


def main(argv: Sequence[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.taco_steps")
    parser.add_argument("--data-root", type=Path, default=Path("../data"))
    root = parser.parse_args(argv).data_root.expanduser().absolute()
    for workload, batch, steps in SETTINGS:
        workload = dataclasses.replace(workload, batch_size=batch)
        with tempfile.TemporaryDirectory() as folder:
            costs = step_costs(workload, root, Path(folder), steps, SECONDS, METHODS)
        print(f"{workload.dataset}, batches of {batch}\n\n{steps_table(costs)}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
