"""A run's model in Python: raw inputs of every form, and sentences where it cannot be used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image
from torch import nn

from clients.fedtgp import FedTgpClient
from fedsuite.core.settings import UserError
from fedsuite.inference.data import open_data
from fedsuite.inference.description import ModelDescription
from fedsuite.inference.model import TrainedModel, load_model
from fedsuite.inference.predictions import Predictions
from tasks.inputs import Category, ImageInputs, Inputs, Number, TableInputs, TokenInputs
from tasks.labels import Labels

IMAGES = ImageInputs("image", (1, 2, 2), (20.0,), (10.0,))
COLOURS = ImageInputs("image", (3, 2, 2), (0.0,) * 3, (1.0,) * 3)
TABLE = TableInputs((Number("age", 4.0, 2.0), Category("way", ("bus", "car"))))
TEXTS = TokenInputs("text", 3, ("the", "cat"))


def model(inputs: Inputs, module: nn.Module | None = None) -> TrainedModel:
    labels = Labels("label", ("no", "yes"))
    description = ModelDescription("mlp", "fedavg", "own", inputs, labels)
    return TrainedModel(description, module or nn.Sequential(nn.Flatten(), nn.LazyLinear(2)))


def picture(value: int) -> Image.Image:
    return Image.new("L", (2, 2), value)


@pytest.mark.parametrize(
    "given",
    [
        picture(40),
        [picture(40)],
        picture(40).convert("RGB"),
        np.full((2, 2), 40, np.uint8),
        np.full((1, 2, 2), 40, np.uint8),
        np.full((1, 2, 2, 1), 40, np.uint8),
        [np.full((2, 2, 3), 40, np.uint8)],
    ],
    ids=["PIL", "list", "colours", "array", "arrays", "channel", "RGB array"],
)
def test_images_of_every_form(given: Any) -> None:
    """Grey 40 with mean 20 and deviation 10 is 2."""
    assert model(IMAGES).preprocess(given).tolist() == [[[[2, 2], [2, 2]]]]


def test_images_of_files_and_bytes(tmp_path: Path) -> None:
    picture(30).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    x = model(IMAGES).preprocess([tmp_path / "a.png", str(tmp_path / "a.png"), content])
    assert x.shape == (3, 1, 2, 2) and (x == 1).all()
    assert model(COLOURS).preprocess(np.zeros((2, 2, 3), np.uint8)).shape == (1, 3, 2, 2)
    big = Image.new("L", (4, 4), 30)
    assert (model(IMAGES).preprocess(big, resize=True) == 1).all()
    with pytest.raises(UserError, match="Row 0 has an image of 4x4 pixels"):
        model(IMAGES).preprocess(big)


@pytest.mark.parametrize(
    "given",
    [
        {"age": 8, "way": "car"},
        [{"age": 8, "way": "car"}],
        {"way": ["car"], "age": [8.0]},
        pa.table({"age": [8], "way": ["car"]}),
        pd.DataFrame({"age": [8], "way": ["car"]}),
    ],
    ids=["row", "rows", "columns", "arrow", "pandas"],
)
def test_rows_of_every_form(given: Any) -> None:
    assert model(TABLE).preprocess(given).tolist() == [[2, 0, 1]]


def test_texts_of_every_form() -> None:
    for given in ("the cat", ["the cat"], {"text": "the cat"}):
        x = model(TEXTS).preprocess(given)
        assert x.tolist() == [[2, 3, 0]] and x.dtype == torch.int64


@pytest.mark.parametrize(
    ("inputs", "given", "sentence"),
    [
        (IMAGES, np.zeros((2, 2)), "must be of uint8 .* not of float64"),
        (IMAGES, 7, "An image must be .* not int"),
        (IMAGES, "nowhere.png", "'nowhere.png' cannot be read: No such file"),
        (IMAGES, Image.new("CMYK", (2, 2)), "An image cannot be used"),
        (TABLE, [1, 2], "Rows of a table must be mappings"),
        (TABLE, {"age": ["x", 1.0], "way": ["bus", "bus"]}, "The rows are no table"),
        (TABLE, {"age": 8}, "The data has no column 'way'"),
        (TEXTS, [1], "Texts must be strings, not int"),
    ],
)
def test_other_inputs_are_refused(inputs: Inputs, given: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        model(inputs).preprocess(given)


def test_classes_and_probabilities() -> None:
    """Logits 2 age' and 0 for age' = 2 and -2: probabilities 1 / (1 + exp(-4)) and its rest."""
    layer = nn.Linear(3, 2, bias=False)
    layer.weight.data = torch.tensor([[0.0, 0, 0], [2, 0, 0]])
    found = model(TABLE, layer).predict({"age": [8, 0], "way": ["bus", "car"]})
    assert found.names == ["yes", "no"] and found.classes == ("no", "yes")
    likely = 1 / (1 + np.exp(-4))
    np.testing.assert_allclose(
        found.probabilities, [[1 - likely, likely], [likely, 1 - likely]], rtol=1e-5
    )
    score = found.score(np.array([1, 1]))
    assert (score.correct, score.total) == (1, 2)
    assert score.loss == pytest.approx((-np.log(likely) - np.log(1 - likely)) / 2, rel=1e-5)


def test_fedtgp_predicts_the_nearest_known_prototype() -> None:
    """Features are the inputs (2, 0, 1): squared distances 5 and 1; the last unknown."""
    beside = {
        "prototypes": torch.tensor([[0.0, 0, 0], [2, 0, 0], [2, 0, 1]]),
        "known": torch.tensor([1.0, 1, 0]),
    }
    module = FedTgpClient.predictor(nn.Sequential(nn.Linear(3, 3)), beside)
    x = torch.tensor([[2.0, 0, 1]])
    assert module(x).tolist() == [[-5, -1, -torch.inf]]
    found = Predictions(("a", "b", "c"), module(x))
    assert found.names == ["b"] and found.probabilities[0, 2] == 0
    layer = nn.Linear(3, 3)
    assert FedTgpClient.predictor(layer, beside | {"known": torch.zeros(3)}) is layer


def edit(path: Path, **changes: Any) -> None:
    document = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: v for key, v in document.items() if v is not None}))


def test_what_cannot_be_used_is_told(experiment: Callable[..., Path]) -> None:
    folder = experiment("fedavg", num_clients=2, num_rounds=1)
    whole = load_model(folder)
    with pytest.raises(UserError, match="one model for all clients: leave out --client"):
        load_model(folder, client=0)
    path = folder / "model.json"
    kept = path.read_text()
    for changes, sentence in (
        ({"version": 2}, "has version 2, and this fedsuite reads version 1"),
        ({"inputs": None}, r"model.json is damaged \(KeyError\('inputs'\)\)"),
        ({"input_shape": [1, 9, 9]}, "input_shape is not that of the inputs"),
        ({"architecture": "lenet"}, "does not hold the model that model.json describes"),
    ):
        edit(path, **changes)
        with pytest.raises(UserError, match=sentence):
            load_model(folder)
        path.write_text(kept)
    other = ModelDescription(
        "mlp", "fedavg", "digits", IMAGES, whole.description.labels
    )  # as if the dataset had changed since
    with pytest.raises(UserError, match="'digits' is here another than that of the run"):
        open_data("test", folder, other, None, False)
    path.unlink()
    with pytest.raises(UserError, match="has no model.json: an earlier version of fedsuite made"):
        load_model(folder)
    (folder / "summary.json").unlink()
    with pytest.raises(UserError, match="has no model to use yet: it is not finished"):
        load_model(folder)


def test_images_are_refused_by_a_model_of_tables(tmp_path: Path) -> None:
    picture(1).save(tmp_path / "a.png")
    with pytest.raises(UserError, match="holds images, and the model takes a column 'age'"):
        open_data(str(tmp_path), tmp_path, model(TABLE).description, None, False)
    (tmp_path / "rows.csv").write_text("age,way\n")
    with pytest.raises(UserError, match=r"holds \.csv files and images, and only one kind"):
        open_data(str(tmp_path), tmp_path, model(TABLE).description, None, False)
    with pytest.raises(UserError, match="has no rows"):
        open_data(str(tmp_path / "rows.csv"), tmp_path, model(TABLE).description, None, False)
