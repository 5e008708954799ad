"""The models of a run, ready to be used: :func:`load_model`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedsuite import registry
from fedsuite.core.flat_model import best_device
from fedsuite.core.settings import UserError
from fedsuite.inference.data import Data
from fedsuite.inference.description import ModelDescription, read_description
from fedsuite.inference.predictions import Predictions
from fedsuite.inference.raw import as_table
from fedsuite.records.folder import RunFolder
from tasks.columns import blocks
from tasks.evaluation import BATCH, evaluation_mode
from tasks.models import build_model
from tasks.task import as_model_input

READ_ROWS = 16 * BATCH  # at once; batches are those in which a run is scored


class TrainedModel:
    """A trained model, and what it takes and gives; ``module`` maps its inputs to logits."""

    def __init__(self, description: ModelDescription, module: nn.Module) -> None:
        self.description, self.module = description, module.eval()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the outputs."""
        return self.description.labels.classes

    def preprocess(self, inputs: Any, resize: bool = False) -> Tensor:
        """Return raw inputs as the module takes them, exactly as in training.

        Parameters
        ----------
        inputs : Any
            Images (paths, bytes, PIL images, arrays of uint8), rows of a table (mappings, a mapping
            of columns, an arrow table, a pandas frame) or texts; one or several.
        resize : bool
            Whether images of another size are resized, otherwise refused.
        """
        fitted = self.description.inputs
        x = fitted.encode(as_table(fitted, inputs), lambda row: f"Row {row}", resize)
        return self._tensor(x)

    def predict(self, inputs: Any, resize: bool = False) -> Predictions:
        """Return the classes of raw inputs, and their probabilities; see :meth:`preprocess`."""
        found = self._logits(self.preprocess(inputs, resize))
        return Predictions(self.classes, torch.cat([*found]))

    def predict_data(self, data: Data) -> Predictions:
        """Return the classes of all rows of some data."""
        found: list[Tensor] = []
        for block in blocks(data.count, READ_ROWS):
            found += self._logits(self._tensor(data.encode(block)))
        return Predictions(self.classes, torch.cat(found))

    def _tensor(self, x: np.ndarray) -> Tensor:
        return as_model_input(torch.from_numpy(x), self.description.inputs.kind)

    def _logits(self, x: Tensor) -> Iterator[Tensor]:
        device = next(self.module.parameters()).device
        with torch.inference_mode(), evaluation_mode(self.module):
            for batch in x.split(BATCH):
                yield self.module(batch.to(device)).cpu()


def load_model(folder: Path, client: int | None = None, device: str = "") -> TrainedModel:
    """Load the global model of a run, or that of a client; on a GPU where there is one."""
    files = RunFolder(folder)
    description = read_description(files)
    path = _model_file(files, description, client)
    module = build_model(description.architecture, description.shape, seed=0)
    try:
        module.load_state_dict(load_file(path), strict=True)
    except (SafetensorError, OSError, RuntimeError) as error:
        reason = str(error).partition("\n")[0].rstrip(":. ")
        raise UserError(
            f"{path} does not hold the model that {files.model_description_file.name} describes "
            f"({reason}). Restore both from a copy."
        ) from None
    if client is not None and (extra := files.client_extra_file(client)).exists():
        predictor = registry.find(description.algorithm).client.predictor
        module = predictor(module, load_file(extra))
    return TrainedModel(description, module.to(device or best_device()))


def _model_file(files: RunFolder, description: ModelDescription, client: int | None) -> Path:
    """Return the file of the model that is asked for; say which there are if that is not there."""
    path = files.model_file if client is None else files.client_model_file(client)
    if path.exists():
        return path
    present = sorted(int(p.stem[-6:]) for p in files.client_models.glob("client-*.safetensors"))
    personal = registry.find(description.algorithm).client.personal
    which = "no global model" if client is None else f"no model of client {client}"
    if present:
        some = ", ".join(map(str, present[:10])) + (", ..." if len(present) > 10 else "")
        advice = f"It has those of the clients {some}: choose one with --client."
    elif personal and not files.model_file.exists():
        advice = (
            f"With {description.algorithm} each deployed node keeps its own model: use the run's "
            "folder in that node's state-dir."
        )
    else:
        advice = "It has one model for all clients: leave out --client."
    raise UserError(f"The run in {files.path} has {which}. {advice}")
