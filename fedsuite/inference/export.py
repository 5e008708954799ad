"""Models as files that others load without fedsuite: ONNX, or PyTorch's exported program.

An exported model takes a row's own values and gives probabilities: pixels and numbers are scaled
inside. Words become ids, and categories ones, outside: ``model.json`` says how, and a copy of it is
in the file.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedsuite.core.files import replacing
from fedsuite.core.settings import UserError
from fedsuite.inference.model import TrainedModel
from tasks.inputs import ImageInputs, Inputs, Number, TableInputs

ONNX, TORCH = "onnx", "torch"
SUFFIXES = {ONNX: ".onnx", TORCH: ".pt2"}
DESCRIPTION = "model.json"  # under this name a file holds the description
INPUT, OUTPUT = "inputs", "probabilities"
TOLERANCE = 1e-4
CHECKED_ROWS = (1, 7)


class ExportedModel(nn.Module):
    """Maps rows' own values, see :func:`as_exported_input`, to probabilities."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        self.module = model.module
        self.scaled = isinstance(model.description.inputs, ImageInputs | TableInputs)
        mean, std = _scales(model.description.inputs)
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, inputs: Tensor) -> Tensor:
        """Scale as in training, then apply the model."""
        x = ((inputs - self.mean) / self.std).float() if self.scaled else inputs
        return self.module(x).softmax(1).float()


def _scales(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Return mean and deviation of each channel or feature; a category's are 0 and 1."""
    if isinstance(inputs, ImageInputs):
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (inputs.mean, inputs.std))
        return mean, std
    pairs: list[tuple[float, float]] = []
    for feature in inputs.features if isinstance(inputs, TableInputs) else ():
        if isinstance(feature, Number):
            pairs.append((feature.mean, feature.std))
        else:
            pairs += [(0.0, 1.0)] * len(feature.categories)
    scales = torch.tensor(pairs, dtype=torch.float64).reshape(-1, 2)
    return scales[:, 0], scales[:, 1]


def as_exported_input(inputs: Inputs, values: np.ndarray) -> np.ndarray:
    """Turn what :meth:`Inputs.read` gives into what an exported model takes."""
    if isinstance(inputs, ImageInputs):
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2))
    return values if isinstance(inputs, TableInputs) else values.astype(np.int64)


def export_model(model: TrainedModel, form: str, path: Path) -> float:
    """Write a model that is on the CPU; return how far probabilities of the file are off, at most.

    The file is loaded again and compared with the model on random rows before it gets its name.
    """
    if form == ONNX:
        _require_onnx()
    exported = ExportedModel(model).eval()
    document = json.dumps(model.description.to_document())
    with replacing(path) as unfinished, _quietly():
        example = torch.from_numpy(_random_rows(model.description.inputs, 2))
        write = _write_onnx if form == ONNX else _write_torch
        write(exported, example, document, unfinished)
        off = max(_difference(model, exported, form, unfinished, n) for n in CHECKED_ROWS)
        if not off <= TOLERANCE:
            raise UserError(
                f"The exported model differs from the run's: probabilities are off by {off:.2g}. "
                "Nothing was written; try the other format."
            )
    return off


def predict_exported(form: str, path: Path, values: np.ndarray) -> np.ndarray:
    """Return the probabilities that a file gives for rows as an exported model takes them."""
    if form == ONNX:
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        found: np.ndarray = session.run([OUTPUT], {INPUT: values})[0]
        return found
    with path.open("rb") as file, torch.inference_mode():
        module = torch.export.load(file).module()
        return module(torch.from_numpy(values)).numpy()


def _difference(
    model: TrainedModel, exported: ExportedModel, form: str, path: Path, rows: int
) -> float:
    values = _random_rows(model.description.inputs, rows)
    with torch.inference_mode():
        expected = exported(torch.from_numpy(values)).numpy()
    return float(np.abs(predict_exported(form, path, values) - expected).max())


def _any_number_of_rows() -> dict[str, Any]:
    return {INPUT: {0: torch.export.Dim("rows")}}


def _write_torch(module: nn.Module, example: Tensor, document: str, path: Path) -> None:
    shapes = _any_number_of_rows()
    program = torch.export.export(module, (example,), dynamic_shapes=shapes)
    with path.open("wb") as file:
        torch.export.save(program, file, extra_files={DESCRIPTION: document})


def _write_onnx(module: nn.Module, example: Tensor, document: str, path: Path) -> None:
    written = torch.onnx.export(
        module,
        (example,),
        dynamo=True,
        dynamic_shapes=_any_number_of_rows(),
        input_names=[INPUT],
        output_names=[OUTPUT],
        verbose=False,
    )
    assert written is not None
    written.model.metadata_props[DESCRIPTION] = document
    written.save(path)


def _random_rows(inputs: Inputs, count: int) -> np.ndarray:
    """Return rows such as an exported model takes: pixels, plausible numbers, ids."""
    draw = np.random.default_rng(0)
    if isinstance(inputs, ImageInputs):
        return draw.integers(0, 256, (count, *inputs.shape)).astype(np.float32)
    if isinstance(inputs, TableInputs):
        mean, std = (values.numpy() for values in _scales(inputs))
        found: np.ndarray = mean + std * draw.standard_normal((count, *inputs.shape))
        return found
    return draw.integers(0, inputs.vocabulary, (count, *inputs.shape))


def _require_onnx() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise UserError(
            f"To export ONNX, {' and '.join(missing)} must be installed: "
            "pip install 'fedsuite[onnx]'."
        )


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep PyTorch's exporters from talking about themselves."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
