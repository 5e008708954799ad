"""FedPer, FedRep and FedBN by hand: what is shared, what stays, and that it does stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from bowl import fit, place
from rounds import TWO_STEPS, play, strategy_of
from safetensors.numpy import load_file
from torch import nn

from clients.base import ClientContext, Training
from clients.fedbn import FedBnClient
from clients.fedper import FedPerClient
from clients.fedrep import FedRepClient
from clients.state import ClientState
from fedsuite.config import parse
from fedsuite.core.files import read_lines
from fedsuite.core.flat_model import FlatModel
from fedsuite.core.settings import UserError
from fedsuite.training.loop import check_feasible
from strategies.base import RunInfo
from strategies.fedbn import FedBn
from strategies.fedper import FedPer, FedPerParams
from strategies.fedrep import FedRepParams
from tasks.models import build_model
from tasks.shapes import DataShape

Experiment = Callable[..., Path]
POINT: dict[str, tuple[int, ...]] = {"low.weight": (1, 1), "top.weight": (1, 1)}
PER, REP = FedPerParams(), FedRepParams(head_epochs=1)


def kept(context: ClientContext) -> list[float]:
    return context.state.load(after_round=True)["model"].tolist()


def test_fedper_sends_the_change_of_its_body_and_keeps_its_head(tmp_path: Path) -> None:
    """Two steps of 1/2 go three quarters of the way to (1, 3). Then the body is sent as 5 and the
    head is as it was: 5 - 3 = 2, and 3 - 3/16 = 45/16.
    """
    context = place(tmp_path, TWO_STEPS)
    (change,), _, _ = fit(FedPerClient, context, [0], params=PER)
    assert change.tolist() == [0.75] and kept(context) == [0.75, 2.25]
    context = place(tmp_path, TWO_STEPS, 2)
    (change,), _, _ = fit(FedPerClient, context, [5], params=PER)
    assert change.tolist() == [-3] and kept(context) == [2, 2.8125]


def test_fedrep_trains_its_head_and_then_its_body(tmp_path: Path) -> None:
    """One step of the head, to 3/2, while the body stays at 0; then two of the body, to 3/4."""
    context = place(tmp_path, TWO_STEPS)
    (change,), _, metrics = fit(FedRepClient, context, [0], params=REP)
    assert change.tolist() == [0.75] and kept(context) == [0.75, 1.5]
    assert metrics["steps"] == 3
    assert metrics["loss"] == pytest.approx(
        np.mean([(1 + 9) / 2, (1 + 2.25) / 2, (0.25 + 2.25) / 2])
    )


def test_fedrep_without_epochs_of_the_head_never_trains_it(tmp_path: Path) -> None:
    context = place(tmp_path, TWO_STEPS)
    fit(FedRepClient, context, [0], params=FedRepParams(head_epochs=0))
    assert kept(context) == [0.75, 0]


def test_fedreps_momentum_is_that_of_the_part_alone(tmp_path: Path) -> None:
    """Two steps of 1/2 with momentum 1/2 towards 3: 3/2, then 3/2 + (3/2 + 3/2)/2 = 3."""
    context = place(tmp_path, Training(local_steps=1, batch_size=1, momentum=0.5))
    fit(FedRepClient, context, [0], params=FedRepParams(head_epochs=2))
    assert kept(context) == [0.5, 3]


def test_stragglers_shorten_both_parts_of_fedrep(tmp_path: Path) -> None:
    how = Training(local_steps=8, batch_size=1, stragglers=1.0, straggler_min=0.1)
    whole, short = Training(local_steps=8, batch_size=1), how
    steps = []
    for name, training in (("whole", whole), ("short", short)):
        params = FedRepParams(head_epochs=8)
        _, _, metrics = fit(FedRepClient, place(tmp_path / name, training), [0], params=params)
        steps.append(metrics["steps"])
    assert steps[0] == 16 and steps[1] < 16 and steps[1] % 2 == 0


def server(cls: type[Any], shapes: dict[str, tuple[int, ...]], buffers: int = 0) -> Any:
    strategy = strategy_of(cls, info={"shapes": shapes})
    strategy.model = np.arange(sum(int(np.prod(s)) for s in shapes.values()), dtype=np.float32)
    strategy.buffers = np.full(buffers, 9, np.float32)
    return strategy


def test_the_server_averages_the_part_by_samples_and_has_nothing_else() -> None:
    """The body is 0 at first; changes 2 and 4 of one and three samples are 7/2."""
    strategy = server(FedPer, POINT)
    assert strategy.broadcast()["part"].tolist() == [0] and strategy.lengths() == {"part": 1}
    play(strategy, [[], []], part=[[2], [4]], examples=[1, 3])
    assert strategy.broadcast()["part"].tolist() == [3.5]
    assert strategy.model.tolist() == [0, 1], "the model that it began with moves nowhere"
    again = server(FedPer, POINT)
    again.load_state(strategy.state())
    assert again.evaluation_broadcast()["part"].tolist() == [3.5]
    assert strategy.kept_files()["shared-part"]["part"].tolist() == [3.5]


NORMED = {"conv.weight": (1, 2), "norm.weight": (2,), "norm.bias": (2,), "fc.weight": (1, 2)}


def test_fedper_shares_the_statistics_of_its_body_and_fedbn_none() -> None:
    """Parameters are 0 to 7, statistics 9: the head is (6, 7), batch normalisation 2 to 5."""
    assert server(FedPer, NORMED, 2).broadcast()["part"].tolist() == [0, 1, 2, 3, 4, 5, 9, 9]
    assert server(FedBn, NORMED, 2).broadcast()["part"].tolist() == [0, 1, 6, 7]


@pytest.mark.parametrize("count", [2, 9])
def test_a_head_that_is_the_whole_model_is_refused_before_the_run(count: int) -> None:
    assert FedPer.shortage(PER, 1, layers=2) == FedPer.shortage(FedPerParams(count), 1) == ""
    assert "has 2 layers" in FedPer.shortage(FedPerParams(count), 1, layers=2)
    given = {"algo": "fedrep", "model": "mlp", "fedrep.head-layers": count + 2}
    with pytest.raises(UserError, match=f"head-layers = {count + 2} leaves nothing to share"):
        check_feasible(parse(given))


# FedBN: the batch (1, 3) has mean 2 and variance 1; statistics move all the way to (2, 2)


class Normed(nn.Module):
    """Batch normalisation with its own scale and offset, then a layer without offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1, eps=1e-12, momentum=1.0)
        self.fc = nn.Linear(1, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.norm(x))


def normed(
    folder: Path,
    number: int = 1,
    inputs: Sequence[float] = (1.0, 3.0),
    labels: Sequence[int] = (0, 1),
) -> ClientContext:
    x, y = torch.tensor(inputs)[:, None], torch.tensor(labels)
    split = SimpleNamespace(train=[np.arange(2)], own_test=[np.arange(2)])
    task: Any = SimpleNamespace(rows=lambda rows: (x[rows], y[rows]), split=split)
    model = FlatModel(Normed())
    start, state = np.array([1, 0, 1, -1], np.float32), ClientState(folder, 0, number, 0)
    how = Training(batch_size=2)
    return ClientContext(0, number, 0, task, model, start, model.buffer_vector(), state, how)


def test_fedbn_sends_neither_batch_norms_parameters_nor_its_statistics(tmp_path: Path) -> None:
    """Both are the client's own in the next round, whatever the server sends."""
    context = normed(tmp_path)
    (change,), _, _ = FedBnClient(context).fit([np.array([1, -1], np.float32)], {"lr": 0.5})
    own = context.state.load(after_round=True)["model"]
    assert change.shape == (2,) and own.shape == (6,)
    assert own[4:].tolist() == [2, 2] and own[0] != 1
    later = normed(tmp_path, 2)
    client = FedBnClient(later)
    client._assemble(np.array([5, 6], np.float32))
    assert later.model.vector().tolist() == [own[0], own[1], 5, 6]
    assert later.model.buffer_vector().tolist() == [2, 2]


def test_a_round_of_fedbn_by_hand(tmp_path: Path) -> None:
    """From scale 1, offset 0 and weights (1, -1). Inputs (1, 3) and (2, 6) are -1 and 1 normalised,
    logits (z, -z), and s = 1/(1 + e^-2) is the share of the class that they favour.

    One client has the labels (0, 1), which they do not favour: dL/dlogits of its rows are (-s, s)/2
    and the negative, so that the gradient is (s, -s) for the weights, 2 s for the scale and 0 for
    the offset; a step is minus half of it. The other client has (1, 0): (s - 1, 1 - s), 2 (s - 1)
    and 0. Of the weights' steps the server takes the mean by samples, a third and two thirds.
    Scales, 1 - s and 2 - s, stay with their clients, and so do means 2 and 4, variances 2 and 8.
    """
    s = 1 / (1 + exp(-2))
    shapes = {"norm.weight": (1,), "norm.bias": (1,), "fc.weight": (2, 1)}
    strategy = server(FedBn, shapes, buffers=2)
    strategy.model = np.array([1, 0, 1, -1], np.float32)
    rows = {"one": ((1.0, 3.0), (0, 1)), "other": ((2.0, 6.0), (1, 0))}
    sent = []
    for name, (inputs, labels) in rows.items():
        client = FedBnClient(normed(tmp_path / name, 1, inputs, labels))
        sent += client.fit([strategy.broadcast()["part"]], {"lr": 0.5})[0]
    steps = np.array([[-s, s], [1 - s, s - 1]]) / 2
    np.testing.assert_allclose(sent, steps, rtol=1e-6)
    play(strategy, [[], []], part=sent, examples=[1, 2])
    together = [1, -1] + steps[0] / 3 + 2 * steps[1] / 3
    np.testing.assert_allclose(strategy.broadcast()["part"], together, rtol=1e-6)
    assert strategy.model.tolist() == [1, 0, 1, -1] and strategy.buffers.tolist() == [9, 9]
    stay = {"one": ([1 - s, 0], [2, 2]), "other": ([2 - s, 0], [4, 8])}
    for name, (normalisation, statistics) in stay.items():
        client = FedBnClient(normed(tmp_path / name, 2, *rows[name]))
        client._assemble(strategy.broadcast()["part"])
        model = client.context.model
        np.testing.assert_allclose(
            model.vector(), [*normalisation, *together], rtol=1e-6, atol=1e-7
        )
        assert model.buffer_vector().tolist() == statistics


def test_fedbn_never_averages_statistics_in_a_whole_run(
    experiment: Experiment, small_resnet: None
) -> None:
    """Clients of two rounds end with statistics of their own; the server's are those of the start,
    and what is sent is the model without its normalisation: 8 numbers and 8 statistics less.
    """
    folder = experiment("fedbn", model="resnet18", local_steps=1)
    files = sorted((folder / "models").glob("client-*.safetensors"))
    means = [load_file(file)["bn1.running_mean"].tobytes() for file in files]
    bodies = {load_file(file)["conv1.weight"].tobytes() for file in files}
    assert len(set(means)) == 4 and len(bodies) == 1
    checkpoint = load_file(folder / "checkpoint" / "latest.safetensors")
    assert not checkpoint["buffers"].any() or set(checkpoint["buffers"]) == {0.0, 1.0}
    size = sum(t.size for n, t in load_file(files[0]).items() if n.split(".")[0] != "bn1")
    rows = [row for row in read_lines(folder / "clients.jsonl") if row["phase"] == "train"]
    assert {row["upload_bytes"] for row in rows} == {4 * size}


@pytest.mark.parametrize("algo", ["fedper", "fedrep"])
def test_heads_stay_with_their_clients_in_a_whole_run(experiment: Experiment, algo: str) -> None:
    """Bodies are the same for all, heads for none; no vector of the server has a head's size."""
    folder = experiment(algo, local_steps=1)
    saved = [load_file(f) for f in sorted((folder / "models").glob("client-*.safetensors"))]
    head = {name for name, tensor in saved[0].items() if tensor.shape[0] == 10}
    assert len(head) == 2, "weights and offsets of the ten classes"
    for name in saved[0]:
        assert len({tensors[name].tobytes() for tensors in saved}) == (4 if name in head else 1)
    size = sum(tensor.size for name, tensor in saved[0].items() if name not in head)
    checkpoint = load_file(folder / "checkpoint" / "latest.safetensors")
    assert checkpoint["strategy.part"].size == size


def test_without_normalisation_fedbn_is_fedavg(experiment: Experiment) -> None:
    settings = {"local_steps": 1, "partition": "sizes", "client_test_fraction": 0.2}
    part = load_file(experiment("fedbn", **settings) / "shared-part.safetensors")["part"]
    model = load_file(experiment("fedavg", **settings) / "model.safetensors")
    order = build_model("mlp", DataShape("image", (1, 8, 8), 10), 0).state_dict()
    assert order.keys() == model.keys()
    assert np.array_equal(part, np.concatenate([model[name].ravel() for name in order]))


def test_info_needs_no_statistics() -> None:
    info = RunInfo(num_clients=1, client_sizes={0: 1}, seed=0, shapes=POINT)
    strategy = FedBn(info)
    strategy.model = np.array([1, 2], np.float32)
    assert strategy.broadcast()["part"].tolist() == [1, 2]
