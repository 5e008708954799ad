"""The real data, where this machine has it: counts and figures from the READMEs beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tasks.dataset_cache import load_dataset
from tasks.datasets import DATASETS

pytestmark = pytest.mark.slow

REAL = Path(__file__).parents[3] / "shared" / "data"
REAL_ROWS = {
    "fashion-mnist": (60_000, 10_000, 10),
    "mnist": (60_000, 10_000, 10),
    "cifar10": (50_000, 10_000, 10),
    "adult": (32_561, 16_281, 2),
    "shakespeare": (3_318_474, 765_240, 69),
    "ag-news": (15_600, 7_600, 4),
    "tiny-imagenet": (5_000, 500, 10),
    "emnist": (20_000, 4_000, 62),
}


def real(name: str) -> pytest.MarkDecorator:
    """Skip where the real files of a dataset are absent."""
    folder = DATASETS[name].folder
    return pytest.mark.skipif(
        not (REAL / folder).is_dir(), reason=f"no shared/data/{folder} beside the project"
    )


@pytest.mark.parametrize("name", [pytest.param(name, marks=real(name)) for name in REAL_ROWS])
def test_real_rows_are_all_there(name: str, cache: Path) -> None:
    train, test, classes = REAL_ROWS[name]
    data = load_dataset(name, str(REAL), cache)
    assert data.num_train == train and len(data.x) == len(data.y) == train + test
    assert data.shape.num_classes == classes
    assert data.y.min() >= 0 and data.y.max() < classes


@real("fashion-mnist")
def test_real_fashion_mnist_pixels(cache: Path) -> None:
    """Black is -mean/std and white (1 - mean)/std of the raw pixels, 0.2860 and 0.3530."""
    data = load_dataset("fashion-mnist", str(REAL), cache)
    train = data.x[: data.num_train]
    assert float(train.mean(dtype=np.float64)) == pytest.approx(0, abs=1e-5)
    assert float(train.std(dtype=np.float64)) == pytest.approx(1, abs=1e-5)
    std = 1 / (train.max() - train.min())
    assert std == pytest.approx(0.3530, abs=5e-5)
    assert -train.min() * std == pytest.approx(0.2860, abs=5e-5)
    assert np.bincount(data.y[: data.num_train]).tolist() == [6_000] * 10


@real("cifar10")
def test_real_cifar10_channels(cache: Path) -> None:
    data = load_dataset("cifar10", str(REAL), cache)
    some = data.x[:5_000]  # enough to hold black and white in each channel
    low, high = some.min(axis=(0, 1, 2)), some.max(axis=(0, 1, 2))
    std = 255 / (high - low)
    np.testing.assert_allclose(std, [62.99321928, 62.08870764, 66.70489964], rtol=1e-5)
    np.testing.assert_allclose(-low * std, [125.30691805, 122.95039414, 113.86538318], rtol=1e-5)


@real("adult")
def test_real_adult_features(cache: Path) -> None:
    """6 numbers and 8 + 16 + 7 + 14 + 6 + 5 + 2 + 41 categories."""
    data = load_dataset("adult", str(REAL), cache)
    assert data.shape.input_shape == (105,)
    assert np.isfinite(data.x).all()
    assert np.bincount(data.y[: data.num_train]).tolist() == [24_720, 7_841]


@real("shakespeare")
def test_real_shakespeare_speakers(cache: Path) -> None:
    data = load_dataset("shakespeare", str(REAL), cache)
    assert data.owners is not None
    assert np.unique(data.owners[: data.num_train]).tolist() == list(range(820))
    table = pq.read_table(REAL / "shakespeare" / "test-00000-of-00001.parquet").slice(0, 3)
    for row, raw in enumerate(table.to_pylist(), start=data.num_train):
        text = [data.class_names[i] for i in data.x[row]]
        assert "".join(text) + data.class_names[data.y[row]] == raw["x"] + raw["y"]
