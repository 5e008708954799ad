"""Exported models give the run's probabilities, from rows' own values, without fedsuite."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsuite.core.settings import UserError
from fedsuite.inference import export
from fedsuite.inference.description import ModelDescription
from fedsuite.inference.export import export_model, predict_exported
from fedsuite.inference.model import TrainedModel
from tasks.inputs import (
    Category,
    CharacterInputs,
    ImageInputs,
    Inputs,
    Number,
    TableInputs,
    TokenInputs,
)
from tasks.labels import Labels
from tasks.models import build_model

LABELS = Labels("label", ("no", "yes"))
TABLE = TableInputs((Number("age", 4e6, 2.0), Category("way", ("bus", "car"))))
OTHERS: dict[str, Inputs] = {
    "cnn6": ImageInputs("image", (3, 8, 8), (4.0, 5.0, 6.0), (6.0, 7.0, 8.0)),
    "fasttext": TokenInputs("text", 5, ("the", "cat")),
    "lstm": CharacterInputs("x", 3, "abc"),
    "resnet18": ImageInputs("image", (3, 8, 8), (4.0, 5.0, 6.0), (6.0, 7.0, 8.0)),
}


def model(name: str, inputs: Inputs) -> TrainedModel:
    description = ModelDescription(name, "fedavg", "own", inputs, LABELS)
    return TrainedModel(description, build_model(name, description.shape, 0))


@pytest.mark.slow
def test_torch_takes_numbers_as_they_are(tmp_path: Path) -> None:
    """An age of 4,000,008 and the category car are 4, 0, 1; float32 would lose the 8."""
    mlp, path = model("mlp", TABLE), tmp_path / "model.pt2"
    assert export_model(mlp, "torch", path) <= 1e-6
    expected = mlp.predict({"age": 4_000_008.0, "way": "car"}).probabilities
    found = predict_exported("torch", path, np.array([[4_000_008.0, 0, 1]]))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    kept = {"model.json": ""}
    torch.export.load(path, extra_files=kept)
    assert json.loads(kept["model.json"])["inputs"]["features"][0]["mean"] == 4e6


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.usefixtures("small_resnet")
def test_every_kind_of_model(name: str, tmp_path: Path) -> None:
    for form in ("onnx", "torch"):
        assert export_model(model(name, OTHERS[name]), form, tmp_path / form) <= 1e-4


@pytest.mark.slow
def test_onnx_takes_any_number_of_rows_and_says_what_they_are(tmp_path: Path) -> None:
    import onnxruntime

    path = tmp_path / "model.onnx"
    export_model(model("mlp", TABLE), "onnx", path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (given,), (found,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.shape, given.type) == ("inputs", ["rows", 3], "tensor(double)")
    assert (found.name, found.type) == ("probabilities", "tensor(float)")
    document = json.loads(session.get_modelmeta().custom_metadata_map["model.json"])
    assert document["labels"]["classes"] == ["no", "yes"]


@pytest.mark.slow
def test_a_file_that_differs_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_difference", lambda *_: 0.01)
    with pytest.raises(UserError, match="probabilities are off by 0.01. Nothing was written"):
        export_model(model("mlp", TABLE), "torch", tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


def test_onnx_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def absent(name: str, *more: Any) -> Any:
        return None if name == "onnxruntime" else find(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", absent)
    with pytest.raises(UserError, match=r"onnxruntime must be installed: pip install 'fedsuite\[o"):
        export_model(model("mlp", TABLE), "onnx", tmp_path / "model.onnx")
