"""Weights & Biases: a run kept offline, in the run's folder, unless ``WANDB_MODE`` says else."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsuite.config import RunConfig
from fedsuite.core.tracker_names import WANDB
from fedsuite.records.folder import RunFolder
from fedsuite.training.base_tracker import PROJECT, ExternalRun, numbers

MODE, NAME = "WANDB_MODE", "WANDB_PROJECT"
USUAL = {"WANDB_ERROR_REPORTING": "false"}


class WandB(ExternalRun):
    """A run of W&B: settings as its config, numbers over rounds, files as artifacts.

    A resume writes another offline folder of the same run; ``wandb sync`` joins them.
    """

    name = WANDB
    buffers = True

    def open(self, config: RunConfig, files: RunFolder, known_id: str) -> str:
        """Open a run, without prompts, output, or a look at the machine and its code."""
        for variable, value in USUAL.items():
            os.environ.setdefault(variable, value)
        import wandb

        mode: Any = os.environ.get(MODE) or "offline"
        if mode == "online":
            wandb.login(prompt=False)
        self._run = wandb.init(
            project=os.environ.get(NAME) or PROJECT,
            id=known_id or None,
            name=files.name,
            dir=files.path,
            config=dict(config.flat()),
            mode=mode,
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True
            ),
        )
        self._run.define_metric("*", step_metric="round")
        return str(self._run.id)

    def send(self, number: int, metrics: Mapping[str, float]) -> None:
        """Record the numbers of a round, with the round as their step."""
        self._run.log({"round": number, **metrics}, step=number, commit=True)

    def add_files(self, name: str, paths: Sequence[Path]) -> None:
        """Keep an artifact of the run's id and this name."""
        import wandb

        artifact = wandb.Artifact(f"{name}-{self._id}", type=name)
        for path in paths:
            inner = (p for p in path.rglob("*") if p.is_file()) if path.is_dir() else (path,)
            top = path if path.is_dir() else path.parent
            for file in inner:  # immutable: no copy in the user's home
                named = file.relative_to(top).as_posix()
                artifact.add_file(str(file), named, policy="immutable")
        self._run.log_artifact(artifact)

    def add_summary(self, summary: Mapping[str, Any]) -> None:
        """Record the numbers of the summary, apart from the last round's."""
        self._run.summary.update({f"summary/{k}": v for k, v in numbers(summary).items()})

    def end(self, finished: bool) -> None:
        """Write or upload what is left, and wait for it: whoever runs this process may kill it."""
        import wandb

        self._run.finish(exit_code=0 if finished else 1)
        wandb.teardown()
