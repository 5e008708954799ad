"""The experiments behind ``docs/evidence``: what is run, with which settings and seeds.

``python -m benchmarks.evidence BLOCK ...`` runs blocks, one run per
core at a time, and skips what is done; ``benchmarks.evidence_tables`` reads the runs.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsuite.records.folder import RunFolder, RunState

SEEDS = (1, 2, 3)
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Block:
    """Experiments that belong into one table: settings they share, and what tells them apart."""

    base: Settings
    cells: Mapping[str, Settings]
    seeds: Sequence[int] = SEEDS

    def runs(self, name: str) -> dict[str, dict[str, Any]]:
        """Return run name -> settings, seed by seed."""
        return {
            f"{name}-{cell}-s{seed}": {**self.base, **settings, "seed": seed}
            for seed in self.seeds
            for cell, settings in self.cells.items()
        }


FMNIST = {"dataset": "fashion-mnist", "model": "lenet", "num-clients": 20}
ADULT = {"dataset": "adult", "model": "mlp", "num-clients": 20}
KAPPAS = (0.4, 0.5, 0.6, 0.8, 0.9)
LAMBDAS = {"T/10": 2, "T/5": 4, "T/2": 10}
TACO_RIVALS: dict[str, Settings] = {
    "taco-round": {"algo": "taco"},
    "taco-step": {"algo": "taco", "taco.gradient-units": "step"},
    "avg": {"algo": "avg"},
    "fedavg": {"algo": "fedavg"},
    "fedprox": {"algo": "fedprox"},
}
ADW_RIVALS: dict[str, Settings] = {
    "fedadw": {"algo": "fedadw"},
    "fedadw-fixed-start": {"algo": "fedadw", "fedadw.adaptive": False},
    "fedadw-by-samples": {"algo": "fedadw", "fedadw.weights": "samples"},
    "fedavg": {"algo": "fedavg"},
    "local": {"algo": "local"},
}
ADW_BASE = {
    **FMNIST,
    "pool-train-test": True,
    "client-test-fraction": 0.25,
    "local-steps": 50,
    "batch-size": 10,
    "lr": 0.005,
    "num-rounds": 20,
    "eval-every": 20,
    "fedadw.ala-percent": 10,
    "fedadw.ala-max-epochs": 20,
}
FEDA4_SWITCHES: dict[str, Settings] = {
    "neither": {"feda4.weights": False, "feda4.adaptation": False},
    "weights": {"feda4.adaptation": False},
    "adaptation": {"feda4.weights": False},
    "both": {},
    "both-printed": {"feda4.direction": "printed"},
}
FREELOADERS: dict[str, Settings] = {
    f"{detector}-k{kappa}-l{strikes}": {
        "taco.detector": detector,
        "taco.kappa": kappa,
        "taco.lambda": strikes,
    }
    for detector in ("guarded", "printed")
    for kappa in KAPPAS
    for strikes in LAMBDAS.values()
}

FEDBAC_BASE = {
    "dataset": "mnist",
    "model": "cnn2",
    "num-clients": 20,
    "fraction-train": 0.5,
    "batch-size": 64,
    "lr": 0.05,
    "momentum": 0.9,
    "num-rounds": 30,
    "eval-rows": 2000,
}
SHARDS = {"partition": "shards", "num-shards": 300, "shards-per-client": 2, "local-epochs": 1}
PRINTED = {"algo": "fedbac", "fedbac.floor": 0.0}
GENTLE = {**SHARDS, "lr": 0.01, "momentum": 0.0}
MIXED = {"partition": "iid", "local-steps": 7}

BLOCKS: dict[str, Block] = {
    "freeloaders": Block(
        {
            **FMNIST,
            "algo": "taco",
            "partition": "groups",
            "freeloaders": "8",
            "local-steps": 15,
            "batch-size": 16,
            "lr": 0.01,
            "num-rounds": 20,
            "eval-every": 20,
        },
        {**FREELOADERS, "nobody-leaves": {"taco.kappa": 1.0}},
    ),
    "taco-adult": Block(
        {
            **ADULT,
            "partition": "dirichlet",
            "dirichlet-alpha": 0.5,
            "local-steps": 100,
            "batch-size": 64,
            "lr": 0.01,
            "num-rounds": 30,
            "target-accuracy": 0.78,
        },
        TACO_RIVALS,
    ),
    "taco-fmnist": Block(
        {
            **FMNIST,
            "partition": "groups",
            "local-steps": 30,
            "batch-size": 16,
            "lr": 0.01,
            "num-rounds": 30,
            "eval-rows": 2000,
            "target-accuracy": 0.65,
        },
        TACO_RIVALS,
    ),
    "feda4": Block(
        {
            **FMNIST,
            "algo": "feda4",
            "num-clients": 10,
            "partition": "dirichlet",
            "dirichlet-alpha": 0.1,
            "probe-per-class": 1,
            "local-epochs": 1,
            "batch-size": 64,
            "optimizer": "adam",
            "lr": 0.001,
            "num-rounds": 10,
        },
        FEDA4_SWITCHES,
    ),
    "fedbac": Block(
        {**FEDBAC_BASE, **SHARDS},
        {
            "fedbac": PRINTED,
            "floor": {"algo": "fedbac"},
            "current": {**PRINTED, "fedbac.reference": "current"},
            "no-regulariser": {**PRINTED, "fedbac.regularizer": "none"},
            "fedavg": {"algo": "fedavg"},
        },
    ),
    "fedbac-checks": Block(
        {**FEDBAC_BASE, "model": "lenet"},
        {
            "fedbac-gentle": {**PRINTED, **GENTLE},
            "fedavg-gentle": {"algo": "fedavg", **GENTLE},
            "fedbac-iid": {**PRINTED, **MIXED},
            "fedavg-iid": {"algo": "fedavg", **MIXED},
        },
        seeds=(1,),
    ),
    "fedadw-pathological": Block(
        {**ADW_BASE, "partition": "pathological", "classes-per-client": 2}, ADW_RIVALS
    ),
    "fedadw-dirichlet": Block(
        {**ADW_BASE, "partition": "dirichlet", "dirichlet-alpha": 0.1}, ADW_RIVALS
    ),
}


def run_block(name: str, data_root: Path, results: Path, jobs: int) -> float:
    """Run what is not done of a block, and note how long that took; return the seconds."""
    started = time.monotonic()
    waiting = [
        {**settings, "data-root": str(data_root), "results-dir": str(results), "run-name": run}
        for run, settings in BLOCKS[name].runs(name).items()
        if RunFolder(results / run).state is not RunState.FINISHED
    ]
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, initializer=_one_thread) as pool:
        for done, run in enumerate(pool.imap_unordered(_run, waiting, chunksize=1), start=1):
            print(f"{done}/{len(waiting)} {run}", file=sys.stderr, flush=True)
    seconds = time.monotonic() - started
    if waiting:
        note = {"seconds": seconds, "runs": len(waiting), "jobs": jobs}
        (results / f"{name}.json").write_text(json.dumps(note))
    return seconds


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
    logging.getLogger("fedsuite").setLevel(logging.ERROR)


def _run(settings: Settings) -> str:
    from fedsuite.config import parse
    from fedsuite.engines.inline import run_inline

    folder = Path(settings["results-dir"]) / settings["run-name"]
    shutil.rmtree(folder, ignore_errors=True)
    run_inline(parse(settings, foreign="ignore"))
    shutil.rmtree(RunFolder(folder).client_states, ignore_errors=True)
    shutil.rmtree(RunFolder(folder).client_models, ignore_errors=True)
    shutil.rmtree(RunFolder(folder).checkpoint_file.parent, ignore_errors=True)
    return str(settings["run-name"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the named blocks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence", description=__doc__)
    parser.add_argument("blocks", nargs="+", choices=BLOCKS)
    parser.add_argument("--data-root", type=Path, default=Path("../shared/data"))
    parser.add_argument("--results-dir", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args(argv)
    results = arguments.results_dir.absolute()
    results.mkdir(parents=True, exist_ok=True)
    for name in arguments.blocks:
        seconds = run_block(name, arguments.data_root.absolute(), results, arguments.jobs)
        print(f"{name}: {seconds:.0f} s", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
