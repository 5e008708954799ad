"""The run's settings: every key of ``[tool.flwr.app.config]``, typed and checked.

Shared keys are the fields of :class:`SharedSettings`; an algorithm's own keys live under its name
(``fedprox.zeta``) and are declared by its strategy's parameter dataclass.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fedsuite import registry
from fedsuite.core import files
from fedsuite.core.client_ids import parse_clients, parse_freeloaders
from fedsuite.core.needs import Idle, settle, settle_unused
from fedsuite.core.protocol import LABEL_FLIP, NO_ATTACK, OWN
from fedsuite.core.run_names import check_run_name
from fedsuite.core.settings import (
    Scalar,
    UserError,
    build,
    flatten,
    invalid,
    kebab,
    shown,
)
from fedsuite.core.tracker_names import parse_trackers
from fedsuite.core.value_lists import write_pair
from fedsuite.metrics import PERSONAL
from fedsuite.shared_settings import SharedSettings
from tasks.datasets import Columns, find_dataset, is_path
from tasks.models import AUTO, find_model
from tasks.partitions import PartitionOptions, find_scheme
from tasks.task_spec import TaskSpec

PERSONAL_TEST_FRACTION = 0.25
# Where and how a run is run: a resumed run takes them from its command, not from its record.
RUNTIME_KEYS = ("results_dir", "run_name", "resume", "data_root", "round_timeout", "superlink")
# Without a model that clients share there is none to move, nor to score on the server's rows.
OF_SHARED_MODEL = ("server_lr", "eval_rows", "freeloader_noise")
OF_UPDATES = ("compression", "compression_share")
OF_ATTACKS = ("attack", "attackers", "attack_strength")
# Keys whose default depends on the algorithm.
FOLLOWS_ALGO = ("personal-eval", "client-test-fraction", "probe-per-class")


@dataclass(frozen=True)
class RunConfig(SharedSettings):
    """All shared settings of a run; ``params`` holds the algorithm's own."""

    params: tuple[tuple[str, Scalar], ...] = ()

    @property
    def task(self) -> TaskSpec:
        """What identifies the task."""
        return TaskSpec(
            dataset=self.dataset,
            data_root=self.data_root,
            partition=self.partition,
            options=PartitionOptions(
                **{f.name: getattr(self, f.name) for f in dataclasses.fields(PartitionOptions)}
            ),
            num_clients=self.num_clients,
            seed=self.seed,
            client_test_fraction=self.client_test_fraction,
            pool_train_test=self.pool_train_test,
            probe_per_class=self.probe_per_class,
            columns=Columns(self.label_column, self.input_columns, self.owner_column),
        )

    @property
    def freeloader_ids(self) -> tuple[int, ...]:
        """The clients that do not train."""
        return parse_freeloaders(self.freeloaders, self.num_clients)

    @property
    def attacker_ids(self) -> tuple[int, ...]:
        """The clients that attack; none without an attack."""
        attackers = parse_clients("attackers", self.attackers, self.num_clients)
        return attackers if self.attack != NO_ATTACK else ()

    @property
    def trackers(self) -> tuple[str, ...]:
        """The tools that are told of the run."""
        return parse_trackers(self.tracking)

    @property
    def plain_steps(self) -> bool:
        """Whether a local step is ``-lr`` times a gradient: no momentum, decay or Adam."""
        return self.optimizer == "sgd" and not (self.momentum or self.weight_decay)

    def learning_rate(self, server_round: int) -> float:
        """Local learning rate in a round."""
        if self.lr_schedule == "constant":
            return self.lr
        return self.lr * self.lr_decay ** (server_round - 1)

    def flat(self) -> dict[str, Scalar]:
        """Return kebab-case keys and values, the algorithm's own under its name."""
        values = {kebab(f.name): getattr(self, f.name) for f in _shared_fields()}
        if self.algo not in registry.ALGORITHMS:
            return values | {"algo-settings": json.dumps(dict(self.params))}
        return values | {f"{self.algo}.{key}": value for key, value in self.params}

    def command(self) -> str:
        """Return a command that repeats this run: the algorithm and what differs from defaults."""
        deciding = ("dataset", "client-test-fraction", "pool-train-test")
        mine, usual = self.flat(), all_defaults()
        chosen = {k: mine[k] for k in deciding if mine[k] != usual[k]}
        usual |= parse({"algo": self.algo, **chosen}).flat() | {k: usual[k] for k in deciding}
        unsaid = ("algo", "run-name", "results-dir", "resume", "superlink")
        changed = {k: v for k, v in mine.items() if usual.get(k) != v and k not in unsaid}
        words = [write_pair(key, value) for key, value in changed.items()]
        words += ["--superlink", self.superlink] if self.superlink else []
        return shlex.join(["fedsuite", "run", self.algo, *words])

    def to_json(self) -> str:
        """Return the settings as one line of JSON; :func:`from_json` reads it back."""
        return json.dumps(self.flat())


def parse(
    values: Mapping[str, Any], foreign: registry.Foreign = "refuse", idle: Idle = "accept"
) -> RunConfig:
    """Check typed or command-line values and fill in what depends on others.

    ``foreign`` is for keys of algorithms that the run does not use: ``refuse`` them, accept them
    with their ``default``, since Flower passes those for every run, or ``ignore`` them. ``idle`` is
    for settings that others deprive of their effect: ``refuse`` what a user has given, ``reset`` to
    the defaults what runs share, ``accept`` what was recorded; a set of keys refuses those and
    resets others. Everything that needs no algorithm's code is checked before that is imported.
    """
    shared = {k: v for k, v in values.items() if "." not in k}
    names = [kebab(f.name) for f in _shared_fields()]
    for key in shared:
        if key not in names:
            hint = registry.suggest_key(key, names, values)
            raise UserError(f"Unknown key '{shown(key)}'. {hint}")
    config = _locate(build(RunConfig, shared))
    find_dataset(config.dataset)
    find_model(config.model)
    find_scheme(config.partition)
    idle = "accept" if config.resume else idle
    prefix, kind = registry.namespace(config.algo), registry.params(config.algo)
    own = registry.own_values(prefix, values, foreign, config.algo_settings)
    config = settle(config, idle, written=shared)
    params = settle(build(kind, own, f"{prefix}."), idle, f"{prefix}.", own)
    config = dataclasses.replace(
        config,
        params=tuple((kebab(f.name), getattr(params, f.name)) for f in dataclasses.fields(params)),
    )
    _refuse_contradictions(config)
    algorithm = registry.find(config.algo)
    if not algorithm.strategy.shares_model:
        config = settle_unused(config, OF_SHARED_MODEL, idle, f"on {config.algo}", shared)
    if "update" not in algorithm.client.sends:
        config = settle_unused(config, OF_UPDATES, idle, f"on {config.algo}", shared)
    if not algorithm.client.sends and config.attack != LABEL_FLIP:
        config = settle_unused(config, OF_ATTACKS, idle, f"on {config.algo}", shared)
    return _resolve(config, algorithm)


def _locate(config: RunConfig) -> RunConfig:
    """Make a dataset's path absolute, unless it is relative to data-root."""
    if not is_path(config.dataset) or config.data_root:
        return config
    return dataclasses.replace(config, dataset=str(files.absolute_path(config.dataset)))


def from_json(text: str) -> RunConfig:
    """Read what :meth:`RunConfig.to_json` wrote."""
    return parse(json.loads(text))


def without_paths(config: RunConfig) -> RunConfig:
    """Return the settings as nodes may know them: without the server's own folders."""
    own = dataclasses.replace(config, results_dir="", server_data="", superlink="")
    return dataclasses.replace(own, data_root="") if config.partition == OWN else own


def params_of(config: RunConfig) -> Any:
    """Return the algorithm's own settings as its strategy declared them."""
    strategy = registry.find(config.algo).strategy
    return build(strategy.Params, dict(config.params))


def setting_groups() -> dict[str, dict[str, dataclasses.Field[Any]]]:
    """Return every key's field: under ``""`` the shared keys, under its name an algorithm's own."""
    groups = {"": {kebab(f.name): f for f in _shared_fields()}}
    return groups | {name: registry.own_settings(name) for name in sorted(registry.ALGORITHMS)}


def all_defaults() -> dict[str, Scalar]:
    """Return every key with its default: shared keys and those of all registered algorithms."""
    values: dict[str, Scalar] = {}
    for group in setting_groups().values():
        values |= {key: cast(Scalar, field.default) for key, field in group.items()}
    return values


def read_toml(path: Path) -> dict[str, Any]:
    """Read a run-config file: kebab-case keys, algorithms' own as tables or dotted keys."""
    return flatten(files.read_toml(path))


def _shared_fields() -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(RunConfig) if f.name != "params"]


def _refuse_contradictions(config: RunConfig) -> None:
    if config.min_train_clients > config.num_clients:
        raise invalid(
            "min-train-clients",
            config.min_train_clients,
            f"with num-clients = {config.num_clients} it must be at most {config.num_clients}; or "
            "raise num-clients.",
        )
    if config.stop_at_target and config.target_accuracy == 0:
        raise UserError("stop-at-target needs a target-accuracy, e.g. target-accuracy=0.8.")
    if config.target_metric.startswith(PERSONAL) and config.personal_eval == "off":
        raise UserError(f"target-metric={config.target_metric} needs personal-eval=on, or auto.")
    if config.resume and not config.run_name:
        raise UserError("resume needs run-name, the run to resume.")
    check_run_name(config.run_name)
    both = set(config.freeloader_ids) & set(config.attacker_ids)
    if both:
        raise UserError(
            f"client {min(both)} cannot be both a freeloader and an attacker. Give ids, e.g. "
            "freeloaders='18,19,' attackers='16,17,'."
        )
    if len(config.freeloader_ids) + len(config.attacker_ids) >= config.num_clients:
        raise invalid("attackers", config.attackers, "at least one client must be honest.")
    parse_trackers(config.tracking)


def _resolve(config: RunConfig, algorithm: registry.Algorithm) -> RunConfig:
    """Replace ``auto`` and zero by what they mean for this dataset and algorithm."""
    changes: dict[str, Any] = {}
    if config.model == AUTO:
        changes["model"] = find_dataset(config.dataset).default_model
    scored = config.client_test_fraction > 0 or config.pool_train_test or algorithm.client.personal
    scored |= config.target_metric.startswith(PERSONAL)
    on = config.personal_eval == "on" or (config.personal_eval == "auto" and scored)
    changes["personal_eval"] = "on" if on else "off"
    if (on or config.pool_train_test) and config.client_test_fraction == 0:
        changes["client_test_fraction"] = PERSONAL_TEST_FRACTION
    if algorithm.strategy.needs_probe and config.probe_per_class == 0:
        changes["probe_per_class"] = 1
    return dataclasses.replace(config, **changes)
