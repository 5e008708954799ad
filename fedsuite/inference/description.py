"""``model.json``: all that the use of a run's models needs beside their tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsuite.config import RunConfig
from fedsuite.core.files import read_document, write_json
from fedsuite.core.settings import UserError
from fedsuite.records.folder import RunFolder
from tasks.dataset_cache import Dataset
from tasks.inputs import Inputs, read_inputs
from tasks.labels import Labels, read_labels
from tasks.shapes import DataShape

VERSION = 1  # raise it when readers of the one before would misread the file


@dataclass(frozen=True)
class ModelDescription:
    """The architecture of a run's models, what they take, and the classes they tell apart."""

    architecture: str
    algorithm: str
    dataset: str
    inputs: Inputs
    labels: Labels

    @classmethod
    def of(cls, config: RunConfig, data: Dataset) -> ModelDescription:
        """Describe the models of a run on some data."""
        return cls(config.model, config.algo, config.dataset, data.inputs, data.labels)

    @property
    def shape(self) -> DataShape:
        """What the architecture must know of the data."""
        return self.inputs.data_shape(len(self.labels.classes))

    def to_document(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        return {
            "version": VERSION,
            "architecture": self.architecture,
            "algorithm": self.algorithm,
            "dataset": self.dataset,
            "input_shape": self.inputs.shape,
            "inputs": self.inputs.to_document(),
            "labels": self.labels.to_document(),
        }

    def write(self, files: RunFolder) -> None:
        """Write it into a run's folder."""
        write_json(files.model_description_file, self.to_document())


def read_description(files: RunFolder) -> ModelDescription:
    """Read what a run's models take and give; say why if that is not there."""
    document = read_document(files.model_description_file)
    if not document:
        raise UserError(_why_absent(files))
    if (version := document.get("version")) != VERSION:
        raise UserError(
            f"{files.model_description_file} has version {version!r}, and this fedsuite reads "
            f"version {VERSION}. Use the fedsuite that made it."
        )
    try:
        return _parse(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{files.model_description_file} is damaged ({error!r}). Restore it from a copy."
        ) from None


def _parse(document: Mapping[str, Any]) -> ModelDescription:
    description = ModelDescription(
        architecture=str(document["architecture"]),
        algorithm=str(document["algorithm"]),
        dataset=str(document["dataset"]),
        inputs=read_inputs(document["inputs"]),
        labels=read_labels(document["labels"]),
    )
    if list(description.inputs.shape) != document["input_shape"]:
        raise ValueError("input_shape is not that of the inputs")
    return description


def _why_absent(files: RunFolder) -> str:
    state = files.state
    if not state.done:
        return f"The run in {files.path} has no model to use yet: it is {state}."
    return (
        f"The run in {files.path} has no {files.model_description_file.name}: an earlier version "
        f"of fedsuite made it. Run it again; `{files.command('show')}` names the command."
    )
