"""The fuzzer is a function of its seed, and notices what it is for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from fedsuite.config import all_defaults, parse
from fedsuite.core.settings import UserError
from fedsuite.registry import ALGORITHMS
from fuzz import runs, settings
from fuzz.__main__ import main, sample_jobs, settings_failures
from fuzz.draws import Case, draw_case
from fuzz.runs import Ending, Job, effect_job, judge, run_all, small_job

PLAIN = Case(7, {"algo": "fedavg", "lr": 0.2, "seed": 3}, frozenset({"lr", "seed"}))


def test_cases_are_a_function_of_seed_and_number() -> None:
    assert repr(draw_case(1, 5)) == repr(draw_case(1, 5)) != repr(draw_case(2, 5))
    assert repr(draw_case(1, 5)) != repr(draw_case(1, 6))


def test_a_sample_of_settings_is_refused_with_sentences_or_accepted_for_good() -> None:
    checked = [settings.check(draw_case(11, number)) for number in range(30)]
    assert list(settings_failures(checked, 11)) == []
    assert 0 < sum(one.config is not None for one in checked) < 30


def test_a_crash_a_murmur_and_a_loss_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(values: Any, **how: Any) -> Any:
        raise ZeroDivisionError("planted")

    def murmur(values: Any, **how: Any) -> Any:
        raise UserError("no")

    with monkeypatch.context() as patch:
        patch.setattr(settings, "parse", crash)
        found = next(settings_failures([settings.check(PLAIN)], 3))
        assert found.startswith("FAILURE python -m fuzz --seed 3 --case 7\n{'algo': 'fedavg'")
        assert "ZeroDivisionError: planted" in found
        patch.setattr(settings, "parse", murmur)
        assert "refused, but not with a sentence: 'no'" in settings.check(PLAIN).failure
    monkeypatch.setitem(settings.WAYS, "by mail", lambda config: parse({}))
    assert "accepted, but changed by mail: [('lr', 0.1), ('lr', 0.2)" in (
        settings.check(PLAIN).failure
    )


def test_the_settings_that_need_not_change_a_model_exist() -> None:
    known = all_defaults().keys()
    assert runs.MEASURING | runs.MAY_NOT_MATTER | {*runs.LARGEST, *runs.FIXED} <= known
    assert runs.SORTED <= ALGORITHMS.keys()


def test_a_run_is_small_and_leaves_one_ordinary_setting_out() -> None:
    job = small_job(Case(1, {"algo": "fedavg", "num-rounds": 900, "lr": 0.2}, frozenset({"lr"})))
    assert job is not None
    assert (job.settings["num-rounds"], job.settings["num-clients"]) == (2, 4)
    other = effect_job(job, parse(job.settings))
    assert other is not None and other.without == "lr"
    assert "lr=0.2" in job.words and "lr=0.2" not in other.words
    measured = Case(2, {"algo": "fedavg", "eval-every": 2}, frozenset({"eval-every"}))
    job = small_job(measured)
    assert job is not None and effect_job(job, parse(job.settings)) is None
    assert small_job(Case(3, {"algo": "fedavg", "min-train-clients": 9})) is None


def left_out(values: dict[str, Any]) -> str | None:
    job = small_job(Case(1, values, frozenset(values) - {"algo"}))
    assert job is not None
    other = effect_job(job, parse(job.settings))
    return other.without if other else None


def test_no_setting_is_left_out_that_another_needs() -> None:
    """Without partition=shards, shards-per-client is refused: that is no effect on a model."""
    assert left_out({"algo": "fedavg", "partition": "shards"}) == "partition"
    both = {"algo": "fedavg", "partition": "shards", "shards-per-client": 3}
    assert left_out(both) == "shards-per-client"


def test_no_setting_is_left_out_that_is_off_twice() -> None:
    assert left_out({"algo": "fedbac", "fedbac.lam": 0}) == "fedbac.lam"
    assert left_out({"algo": "fedbac", "fedbac.lam": 0, "fedbac.regularizer": "none"}) is None


def test_settings_of_a_new_algorithm_run_small_and_need_no_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ALGORITHMS, "newest", ALGORITHMS["pfedme"])
    values = {"algo": "newest", "newest.inner-steps": 100_000, "newest.lam": 3.0}
    job = small_job(Case(1, values, frozenset({"newest.lam"})))
    assert job is not None and job.settings["newest.inner-steps"] == 4
    assert effect_job(job, parse(job.settings)) is None
    assert left_out({"algo": "newest", "lr": 0.3, "newest.lam": 3.0}) == "lr"


def test_results_are_the_models_and_the_record_of_clients_but_for_times(tmp_path: Path) -> None:
    def results(model: bytes, row: str) -> str:
        (tmp_path / "fuzz").mkdir(exist_ok=True)
        (tmp_path / "fuzz" / "model.safetensors").write_bytes(model)
        (tmp_path / "fuzz" / "clients.jsonl").write_text(row + "\n")
        return runs._hash(tmp_path)

    assert runs._hash(tmp_path) == ""
    first = results(b"a", '{"penalty": 1, "cpu_seconds": 2}')
    assert first == results(b"a", '{"penalty": 1, "cpu_seconds": 3}')
    assert first != results(b"a", '{"penalty": 2, "cpu_seconds": 2}')
    assert first != results(b"b", '{"penalty": 1, "cpu_seconds": 2}')


def test_tracebacks_hangs_silence_and_settings_without_effect_are_failures() -> None:
    job, without = Job(PLAIN, PLAIN.values), Job(PLAIN, PLAIN.values, "lr")
    fine = Ending(0, "finished", "abc")
    repeats = "fedsuite run fedavg lr=0.2 seed=3 --engine inline --name fuzz\n"
    for bad in (
        Ending(None, "round 1"),
        Ending(-9, ""),
        Ending(1, "fedsuite: no\nTraceback (most recent call last)"),
        Ending(2, ""),
    ):
        (failure,) = judge([(job, bad)])
        assert failure.startswith(repeats)
    assert list(judge([(job, fine), (without, Ending(0, "finished", "abd"))])) == []
    assert list(judge([(job, Ending(2, "fedsuite: no.")), (without, fine)])) == []
    (failure,) = judge([(without, fine), (job, fine)])
    assert failure.endswith("\nlr=0.2 changes nothing beside these settings")


def planted(words: list[str]) -> int:
    """Crash with one seed, hang with another, end with a third."""
    if "seed=1" in words:
        raise ZeroDivisionError("planted")
    if "seed=2" in words:
        time.sleep(600)
    return 0


@pytest.mark.parametrize(
    ("seed", "seconds", "expected"),
    [(1, 100.0, "ZeroDivisionError: planted"), (2, 0.2, "no end within 0 s"), (3, 100.0, "")],
)
def test_a_planted_crash_and_a_planted_hang_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, seconds: float, expected: str
) -> None:
    monkeypatch.setattr(runs, "main", planted)
    monkeypatch.setattr(runs, "SECONDS", seconds)
    job = Job(Case(seed, {}), {"algo": "fedavg", "seed": seed})
    failures = list(judge(run_all([job], tmp_path, 2)))
    assert len(failures) == bool(expected) and expected in "".join(failures)


@pytest.mark.slow
def test_two_runs_end_well(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSUITE_CACHE", "set by main, and restored")
    words = ["--seed", "5", "--count", "12", "--runs", "2", "--datasets", "0"]
    assert main(words) == 0
    assert "12 settings" in capfd.readouterr().out
    checked = [settings.check(draw_case(5, number)) for number in range(12)]
    assert len([job for job in sample_jobs(checked, 2) if not job.without]) == 2
