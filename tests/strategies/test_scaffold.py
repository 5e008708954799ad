"""SCAFFOLD's control variates by hand, over rounds, losses and restarts; and tailored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rounds import TWO_STEPS, meet, play, strategy_of
from safetensors.numpy import load_file

from clients.base import Training
from clients.scaffold import ScaffoldClient
from fedsuite.core.files import read_lines
from fedsuite.core.vector import Vector
from fedsuite.engines.inline import InlineGrid
from strategies.scaffold import Scaffold, control_move
from strategies.scaffold_tailored import ScaffoldTailored

Experiment = Callable[..., Path]
MOMENTUM = Training(local_steps=2, batch_size=1, momentum=0.5)


def test_the_servers_control_by_hand() -> None:
    """Updates (-4, 0) in 2 steps and (0, -4) in 4, lr 0.5, c = (1, 1), 4 clients in all.

    dc = (4, 0)/1 - c = (3, -1) and (0, 4)/2 - c = (-1, 1); the sum (2, 0) over 4: (1/2, 0).
    """
    updates = np.array([[-4, 0], [0, -4]], np.float32)
    move = control_move(updates, np.ones(2, np.float32), np.array([2, 4]), 0.5, 4)
    assert np.array_equal(move, [0.5, 0.0])


def test_the_sum_goes_over_participants_and_is_shared_by_all() -> None:
    """One of four clients takes part: c is a quarter of its change, not the whole."""
    strategy = strategy_of(Scaffold, clients=4)
    play(strategy, [[-4, 8]], clients=[2], steps=2)
    assert np.array_equal(strategy.broadcast()["control"], [1.0, -2.0])
    assert np.array_equal(strategy.model, [-4, 8])


@pytest.mark.parametrize("control", ["update", "gradient"])
def test_two_rounds_on_two_bowls_by_hand(tmp_path: Path, control: str) -> None:
    """Bottoms (1, 3) and (-1, 1), K = 2, lr = 1/2, so K lr = 1.

    Round 1, no control: updates (3/4, 9/4), (-3/4, 3/4); w = (0, 3/2);
    c_i = (-3/4, -9/4), (3/4, -3/4); c = (0, -3/2).
    Round 2: c - c_i = (3/4, 3/4) and (-3/4, -3/4). Client 0: g = (-1, -3/2), steps to
    (1/8, 15/8), (3/16, 33/16); client 1: to (-1/8, 13/8), (-3/16, 27/16). w = (0, 15/8).
    The mean gradients (-15/16, -21/16), (15/16, 9/16) are the new c_i; c = (0, -3/8).
    """
    strategy = strategy_of(Scaffold, control=control)
    meet(strategy, ScaffoldClient, tmp_path, 1)
    assert np.array_equal(strategy.model, [0, 1.5])
    assert np.array_equal(strategy.control, [0, -1.5])
    meet(strategy, ScaffoldClient, tmp_path, 2)
    assert np.array_equal(strategy.model, [0, 1.875])
    assert np.array_equal(strategy.control, [0, -0.375])
    own = [
        load_file(tmp_path / str(c) / "000000" / "000002.safetensors")["control"] for c in (0, 1)
    ]
    assert np.array_equal(own, [[-0.9375, -1.3125], [0.9375, 0.5625]])


@pytest.mark.parametrize("control", ["update", "gradient"])
def test_partial_participation_on_two_bowls_of_four_clients_by_hand(
    tmp_path: Path, control: str
) -> None:
    """Four clients, of which only 0 and 1 have bowls; K = 2, lr = 1/2, so K lr = 1. A round of two
    steps goes 3/4 of the way to bottom - (c - c_i), and the new c_i is minus the update less that
    pull.

    Round 1, client 0 alone, from (0, 0): update (3/4, 9/4); c_0 = -(3/4, 9/4), c = c_0/4 =
    (-3/16, -9/16); w = (3/4, 9/4).
    Round 2, client 1 alone: c_1 = 0, pull c; 3/4 of ((-1, 1) - w - c) = (-25/16, -11/16) is
    (-75/64, -33/64); w = (-27/64, 111/64). c_1 = (75/64, 33/64) - c = (87/64, 69/64), and c gains
    a quarter of it: (39/256, -75/256).
    Round 3, client 0 again: pull c - c_0 = (231/256, 501/256); (1, 3) - w - pull = (133/256,
    -177/256), update 3/4 of it, (399/1024, -531/1024). c_0 becomes minus that less the pull,
    (-1323/1024, -1473/1024): a change of (-555/1024, 831/1024); c gains a quarter of it.
    """
    strategy = strategy_of(Scaffold, clients=4, control=control)
    for number, client in enumerate((0, 1, 0), start=1):
        sent = meet(strategy, ScaffoldClient, tmp_path, number, clients=[client])
    change = np.array([-555, 831]) / 1024
    np.testing.assert_allclose(sent["update"], [[399 / 1024, -531 / 1024]], atol=1e-7)
    if control == "gradient":
        np.testing.assert_allclose(sent["control_change"], [change], atol=1e-6)
    np.testing.assert_allclose(strategy.model, [-33 / 1024, 1245 / 1024], atol=1e-6)
    expected = np.array([39, -75]) / 256 + change / 4
    np.testing.assert_allclose(strategy.control, expected, atol=1e-6)
    assert strategy.counted.tolist() == [3, 2, 0, 0]
    own = load_file(tmp_path / "0" / "000000" / "000003.safetensors")["control"]
    np.testing.assert_allclose(own, np.array([-1323, -1473]) / 1024, atol=1e-6)


def test_sent_changes_are_shared_by_all_clients() -> None:
    """Changes (8, 0) and (0, -4) of clients 1 and 3 of five: c = (8/5, -4/5), then plus (1, 1)/5;
    neither the mean of two nor weighted by anything, and the updates do not enter.
    """
    strategy = strategy_of(Scaffold, clients=5, control="gradient")
    changes = [[8, 0], [0, -4]]
    play(strategy, [[2, 2], [4, 4]], clients=[1, 3], steps=[1, 7], control_change=changes)
    np.testing.assert_allclose(strategy.control, [1.6, -0.8], rtol=1e-6)
    assert np.array_equal(strategy.model, [3, 3])
    play(strategy, [[0, 0]], clients=[0], number=2, control_change=[[1, 1]])
    np.testing.assert_allclose(strategy.control, [1.8, -0.6], rtol=1e-6)
    assert strategy.counted.tolist() == [2, 1, 0, 1, 0]


def test_two_bowls_meet_at_the_middle_of_their_bottoms(tmp_path: Path) -> None:
    """The minimum of the sum is (0, 2); drift would be corrected to within rounding."""
    strategy = strategy_of(Scaffold)
    for number in range(1, 40):
        meet(strategy, ScaffoldClient, tmp_path, number)
    np.testing.assert_allclose(strategy.model, [0, 2], atol=1e-5)
    np.testing.assert_allclose(strategy.control, [0, 0], atol=1e-5)


@pytest.mark.parametrize("coefficient", [1.0, 0.5])
@pytest.mark.parametrize("training", [TWO_STEPS, MOMENTUM], ids=["plain", "momentum"])
def test_auto_keeps_control_variates_that_are_gradients(
    tmp_path: Path, coefficient: float, training: Training
) -> None:
    """At the meeting point the own gradients are (0,2) - bottom = (-1, -1) and (1, 1); so are c_i,
    whatever the optimiser and the coefficient; the printed rule would give others.
    """
    plain = training is TWO_STEPS
    strategy = strategy_of(Scaffold, info={"plain_sgd": plain}, coefficient=coefficient)
    assert (strategy.params.control == "update") == (plain and coefficient == 1.0)
    strategy.model = np.array([0, 2], np.float32)
    for number in range(1, 60):
        meet(strategy, ScaffoldClient, tmp_path, number, training)
        strategy.model = np.array([0, 2], np.float32)
    state = load_file(tmp_path / "0" / "000000" / "000059.safetensors")
    pull = coefficient * (strategy.control - state["control"])
    if coefficient == 1.0:
        np.testing.assert_allclose(state["control"], [-1, -1], atol=1e-4)
        np.testing.assert_allclose(pull, [1, 1], atol=1e-4)
    else:
        assert (np.abs(pull) < 0.9).all(), "a smaller coefficient corrects less"


def test_the_printed_control_undoes_a_coefficient(tmp_path: Path) -> None:
    """Option II leaves ``(a - 1)(c - c_i)`` in ``c_i``; it adds up until the pull is whole again,
    whatever ``a`` is. The mean gradient leaves nothing: the pull is smaller with half of it.
    """
    pulls = {}
    for control in ("update", "gradient"):
        folder = tmp_path / control
        strategy = strategy_of(Scaffold, coefficient=0.5, control=control)
        for number in range(1, 40):
            strategy.model = np.array([0, 2], np.float32)
            meet(strategy, ScaffoldClient, folder, number)
        own = load_file(folder / "0" / "000000" / "000039.safetensors")["control"]
        pulls[control] = 0.5 * (strategy.control - own)
    np.testing.assert_allclose(pulls["update"], [1, 1], atol=1e-4)
    assert (pulls["gradient"] < 0.6).all()


def test_a_lost_reply_does_not_part_server_and_clients(tmp_path: Path) -> None:
    """Round 2 is lost: the server's c stays, and round 3 is what round 2 would have been."""
    strategy = strategy_of(Scaffold)
    meet(strategy, ScaffoldClient, tmp_path, 1)
    kept, model = strategy.state(), strategy.model.copy()
    kept = {name: np.array(value) if name != "expelled" else value for name, value in kept.items()}
    meet(strategy, ScaffoldClient, tmp_path, 2)
    expected = strategy.model.copy(), strategy.control.copy()
    strategy.load_state(kept)
    strategy.model = model
    meet(strategy, ScaffoldClient, tmp_path, 3)
    assert np.array_equal(strategy.model, expected[0])
    assert np.array_equal(strategy.control, expected[1])


def test_state_survives() -> None:
    strategy, again = strategy_of(Scaffold, clients=3), strategy_of(Scaffold, clients=3)
    play(strategy, [[3, 0], [0, 3]], clients=[0, 2])
    again.load_state(strategy.state())
    again.model = strategy.model
    assert strategy.instruction(2).config == again.instruction(2).config == {"counted": 1}
    for one in (strategy, again):
        play(one, [[1, 0], [0, 3]], clients=[1, 2], number=2)
    assert np.array_equal(strategy.control, again.control)
    assert again.counted.tolist() == [1, 2, 2]


@given(
    st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=2),
    st.sampled_from([0.0, 1e-18, 1.0, 1e18]),
    st.integers(0, 1000),
)
def test_finite_in_finite_out(numbers: list[float], scale: float, steps: int) -> None:
    rows = np.array([numbers, numbers[::-1]], np.float32) * np.float32(scale)
    move = control_move(rows, rows[0], np.full(2, steps), 0.01, 2)
    backward = control_move(rows[::-1].copy(), rows[0], np.full(2, steps), 0.01, 2)
    assert np.isfinite(move).all()
    np.testing.assert_allclose(move, backward, rtol=1e-5, atol=1e-5 * scale)


def model(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def states(folder: Path) -> list[dict[str, Vector]]:
    return [load_file(path) for path in sorted((folder / "clients").rglob("*.safetensors"))]


@pytest.mark.parametrize("algo", ["scaffold", "scaffold-tailored"])
def test_the_first_round_is_plain_since_all_control_is_zero(
    experiment: Experiment, algo: str
) -> None:
    assert model(experiment(algo, num_rounds=1)) == model(experiment("avg", num_rounds=1))
    assert model(experiment(algo)) != model(experiment("avg"))


def test_each_client_has_a_control_variate_of_its_own(experiment: Experiment) -> None:
    """After full rounds c is the mean of all c_i, wherever the clients ran."""
    one, three = (experiment("scaffold", InlineGrid(nodes), num_rounds=3) for nodes in (1, 3))
    assert model(one) == model(three)
    newest = [state for state in states(one) if state["round"][0] == 3]
    controls = np.stack([state["control"] for state in newest])
    assert len(np.unique(controls, axis=0)) == 4
    checkpoint = load_file(one / "checkpoint" / "latest.safetensors")
    np.testing.assert_allclose(
        checkpoint["strategy.control"], controls.mean(axis=0), atol=1e-5, rtol=1e-4
    )


def test_the_mean_holds_with_few_participants_and_unequal_steps(experiment: Experiment) -> None:
    """Those who never took part count as zero."""
    settings = {"num_clients": 6, "fraction_train": 0.5, "num_rounds": 4, "partition": "sizes"}
    folder = experiment("scaffold", **settings)
    newest: dict[str, Vector] = {}
    for path in sorted((folder / "clients").rglob("*.safetensors")):
        newest[path.parent.name] = load_file(path)["control"]
    checkpoint = load_file(folder / "checkpoint" / "latest.safetensors")
    np.testing.assert_allclose(
        checkpoint["strategy.control"], sum(newest.values()) / 6, atol=1e-5, rtol=1e-4
    )


@pytest.mark.usefixtures("small_resnet")
def test_statistics_of_batch_norm_have_no_control(experiment: Experiment) -> None:
    settings = {"num_clients": 40, "fraction_train": 0.05, "eval_rows": 8}
    folder = experiment("scaffold", model="resnet18", num_rounds=1, **settings)
    weights = {
        name: tensor
        for name, tensor in load_file(folder / "model.safetensors").items()
        if "running" not in name and "tracked" not in name
    }
    size = sum(tensor.size for tensor in weights.values())
    assert {state["control"].size for state in states(folder)} == {size}


def test_the_change_travels_only_where_it_must(experiment: Experiment) -> None:
    def uploads(**settings: object) -> set[int]:
        rows = read_lines(experiment("scaffold", num_rounds=1, **settings) / "clients.jsonl")
        return {row["upload_bytes"] for row in rows if row["phase"] == "train"}

    (plain,), (momentum,), (adam,) = uploads(), uploads(momentum=0.9), uploads(optimizer="adam")
    assert momentum == adam == 2 * plain


def test_printed_and_exact_control_agree_up_to_rounding(experiment: Experiment) -> None:
    printed, exact = (
        load_file(
            experiment("scaffold", num_rounds=3, **{"scaffold.control": how}) / "model.safetensors"
        )
        for how in ("update", "gradient")
    )
    for name, tensor in printed.items():
        np.testing.assert_allclose(exact[name], tensor, atol=1e-4)


def test_tailored_coefficients_by_hand() -> None:
    """Updates (3,0), (0,3), (3,3) have alpha 1/2, 1/2, 0.585786; before a round it is 0.1."""
    strategy = strategy_of(ScaffoldTailored, clients=4, coefficient=2.0)
    first = strategy.instruction(0)
    assert first.config == {"counted": 0}
    assert first.params == {"control": "gradient", "coefficient": pytest.approx(1.8)}
    changes = [[0.0, 0.0]] * 3
    this_round = play(strategy, [[3, 0], [0, 3], [3, 3]], control_change=changes)
    own = [strategy.instruction(c).params["coefficient"] for c in range(4)]
    assert own == pytest.approx([1.0, 1.0, 0.828427, 1.8], abs=1e-5)
    assert this_round.per_client["alpha"][2] == pytest.approx(0.585786, abs=1e-6)
    again = strategy_of(ScaffoldTailored, clients=4, coefficient=2.0)
    again.load_state(strategy.state())
    assert [again.instruction(c).params["coefficient"] for c in range(4)] == own


def test_two_tailored_rounds_on_two_bowls_by_hand(tmp_path: Path) -> None:
    """Round 1 as SCAFFOLD's: w = (0, 3/2), c - c_i = +-(3/4, 3/4). Updates (3/4, 9/4) and
    (-3/4, 3/4) have shares 0.690983, 0.309017 and cosines 0.948683, 0.707107 with their mean:
    alpha = 0.293159, 0.488599; pulls 0.706841 * 3/4 = 0.530131 and -0.511401 * 3/4 = -0.383551.
    Two steps of 1/2 go 3/4 of the way to bottom - pull: (0.352402, 0.727402) and
    (-0.462337, -0.087337). w = (-0.054968, 1.820033).
    Mean gradients are -update - pull: c = mean = (-0.018323, -0.393323).
    """
    strategy = strategy_of(ScaffoldTailored)
    meet(strategy, ScaffoldClient, tmp_path, 1)
    assert np.array_equal(strategy.model, [0, 1.5])
    meet(strategy, ScaffoldClient, tmp_path, 2)
    np.testing.assert_allclose(strategy.model, [-0.054968, 1.820033], atol=2e-6)
    np.testing.assert_allclose(strategy.control, [-0.018323, -0.393323], atol=2e-6)


@pytest.mark.parametrize(
    ("cls", "coefficient", "plain", "control"),
    [
        (Scaffold, 0.0, True, "update"),
        (Scaffold, 0.0, False, "gradient"),
        (Scaffold, 2.0, True, "gradient"),
        (ScaffoldTailored, 0.0, True, "update"),
        (ScaffoldTailored, 0.0, False, "gradient"),
        (ScaffoldTailored, 1.0, True, "gradient"),
    ],
)
def test_which_control_auto_is(
    cls: type[Scaffold], coefficient: float, plain: bool, control: str
) -> None:
    """The update suffices where there is no correction, or the whole one that all share."""
    strategy = strategy_of(cls, info={"plain_sgd": plain}, coefficient=coefficient)
    assert strategy.instruction(0).params["control"] == control
    sent = {"update": 2} | ({"control_change": 2} if control == "gradient" else {})
    assert strategy.lengths() == sent


def test_one_step_and_no_step_count_as_one() -> None:
    """Update (-1, 0), lr 1/2, of two clients: dc = (2, 0), half of it."""
    for steps in (0, 1):
        update = np.array([[-1, 0]], np.float32)
        move = control_move(update, np.zeros(2, np.float32), np.array([steps]), 0.5, 2)
        assert move.tolist() == [1, 0]
