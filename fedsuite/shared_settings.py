"""Every setting that runs of all algorithms share: default, help text, bounds, what it needs."""

from __future__ import annotations

from dataclasses import dataclass

from fedsuite.core.protocol import ATTACKS, COMPRESSIONS, LABEL_FLIP, NO_ATTACK, OWN
from fedsuite.core.settings import setting
from fedsuite.metrics import TARGET_METRICS
from tasks.datasets import DATASETS, HUB, TABLES
from tasks.models import AUTO, MODELS
from tasks.partitions import PARTITIONS

OUTSIDE = "MODULE:ATTRIBUTE"
# Datasets that go by a path or by their id on the hub.
GIVEN_DATASETS = " or ".join(f"dataset={p}" for p in (*(f"*{t}" for t in TABLES), "*/*"))


@dataclass(frozen=True)
class SharedSettings:
    """The keys of ``[tool.flwr.app.config]`` but those of algorithms."""

    algo: str = setting(
        "fedavg", "algorithm (`fedsuite list algorithms`), or MODULE:ATTRIBUTE of your own"
    )
    algo_settings: str = setting("", "settings of an algorithm of your own, as a JSON object")
    dataset: str = setting(
        "digits",
        "dataset; own = the data deployed nodes hold; a path is relative to data-root if set",
        choices=(*DATASETS, OWN),
        others=f"a path, {HUB}OWNER/NAME or MODULE:ATTRIBUTE",
    )
    label_column: str = setting(
        "label",
        "target column (dataset=own, a path or of the hub)",
        needs=f"dataset={OWN} or {GIVEN_DATASETS}",
    )
    input_columns: str = setting(
        "",
        "columns to learn from, e.g. age,pulse (dataset = a path or of the hub); empty = guessed",
        needs=GIVEN_DATASETS,
    )
    owner_column: str = setting(
        "",
        "column of samples' owners, for partition=natural (dataset = a path or of the hub)",
        needs=GIVEN_DATASETS,
    )
    model: str = setting(
        AUTO, "model; auto = the dataset's default", choices=(AUTO, *MODELS), others=OUTSIDE
    )
    partition: str = setting(
        "dirichlet",
        "how samples are divided among clients; own = as deployed nodes hold them",
        choices=(*PARTITIONS, OWN),
        others=OUTSIDE,
    )
    dirichlet_alpha: float = setting(
        0.5, "concentration (partition=dirichlet)", above=0, needs="partition=dirichlet"
    )
    num_shards: int = setting(
        0,
        "number of shards (partition=shards); 0 = num-clients x shards-per-client",
        low=0,
        needs="partition=shards",
    )
    shards_per_client: int = setting(
        2, "shards per client (partition=shards)", low=1, needs="partition=shards"
    )
    classes_per_client: int = setting(
        2, "classes per client (partition=pathological)", low=1, needs="partition=pathological"
    )
    natural_rows: int = setting(
        0,
        "samples of owners pooled onto the clients (partition=natural); 0 = one owner per client",
        low=0,
        needs="partition=natural",
    )
    size_ratio: float = setting(
        10.0,
        "samples of the largest client over the smallest's (partition=sizes)",
        low=1,
        needs="partition=sizes",
    )
    num_clients: int = setting(
        20, "number of clients; deployed: the number of nodes", low=1, high=100_000
    )
    num_rounds: int = setting(20, "number of rounds", low=1, high=1_000_000)
    fraction_train: float = setting(1.0, "fraction of clients sampled per round", above=0, high=1)
    min_train_clients: int = setting(1, "minimum number of clients per round", low=1)
    local_epochs: int = setting(
        1, "local epochs per round", low=1, high=100_000, needs="local-steps=0"
    )
    local_steps: int = setting(
        0, "local steps per round; 0 = use local-epochs", low=0, high=1_000_000
    )
    batch_size: int = setting(16, "batch size", low=1)
    optimizer: str = setting(
        "sgd", "local optimizer; its state is reset every round", choices=("sgd", "adam")
    )
    lr: float = setting(0.1, "local learning rate", above=0)
    lr_schedule: str = setting(
        "constant", "learning-rate schedule over rounds", choices=("constant", "exponential")
    )
    lr_decay: float = setting(
        0.99,
        "decay per round, a factor (lr-schedule=exponential)",
        above=0,
        high=1,
        needs="lr-schedule=exponential",
    )
    momentum: float = setting(
        0.0,
        "momentum (optimizer=sgd); starts at zero in every round",
        low=0,
        high=0.9999,
        needs="optimizer=sgd",
    )
    weight_decay: float = setting(0.0, "weight decay (L2 penalty)", low=0)
    server_lr: float = setting(1.0, "server learning rate, on the aggregated update", above=0)
    seed: int = setting(0, "seed of all random draws", low=0)
    eval_every: int = setting(1, "rounds between evaluations", low=1)
    eval_rows: int = setting(0, "test samples the server scores on, drawn once; 0 = all", low=0)
    personal_eval: str = setting(
        "auto",
        "score clients on their own test samples; auto = if the algorithm is personalised, "
        "clients hold out test samples, or target-metric is theirs",
        choices=("auto", "on", "off"),
    )
    client_test_fraction: float = setting(
        0.0, "fraction of a client's samples held out to test; 0 = 0.25 if needed", low=0, high=0.9
    )
    pool_train_test: bool = setting(False, "divide train and test samples together among clients")
    probe_per_class: int = setting(
        0, "samples per class in the server's probe set; 0 = 1 if the algorithm needs one", low=0
    )
    target_accuracy: float = setting(
        0.0, "accuracy whose time to reach is measured; 0 = none", low=0, high=1
    )
    target_metric: str = setting(
        "accuracy",
        "score that must reach target-accuracy",
        choices=TARGET_METRICS,
        needs="target-accuracy",
    )
    stop_at_target: bool = setting(False, "stop when target-accuracy is reached")
    freeloaders: str = setting(
        "", "clients that do not train: a count such as 8, or ids such as '3,7,'"
    )
    freeloader_noise: float = setting(
        0.0,
        "noise that freeloaders add, relative to the norm of what they send back",
        low=0,
        needs="freeloaders",
    )
    attack: str = setting(
        NO_ATTACK, "what attackers do", choices=(NO_ATTACK, *ATTACKS), needs="attackers"
    )
    attackers: str = setting(
        "",
        "clients that attack: a count such as 4, or ids such as '3,7,'",
        needs=" or ".join(f"attack={attack}" for attack in ATTACKS),
    )
    attack_strength: float = setting(
        0.0,
        "factor of sign-flip and scaled, relative length of gaussian noise; 0 = 1, for scaled 10",
        low=0,
        needs=("attackers", " or ".join(f"attack={a}" for a in ATTACKS if a != LABEL_FLIP)),
    )
    dropout: float = setting(0.0, "share of sampled clients that drop out", low=0, high=0.99)
    stragglers: float = setting(0.0, "share of clients that train fewer steps", low=0, high=1)
    straggler_min: float = setting(
        0.1,
        "least share of its steps that a straggler trains",
        low=0,
        high=0.99,
        needs="stragglers",
    )
    compression: str = setting("none", "compression of what clients send", choices=COMPRESSIONS)
    compression_share: float = setting(
        0.1, "share of the numbers that top-k keeps", above=0, high=1, needs="compression=top-k"
    )
    device: str = setting(
        "auto",
        "device to compute on; auto = cuda if there is a GPU",
        choices=("auto", "cpu", "cuda"),
    )
    client_threads: int = setting(
        1, "CPU threads per client; those that train together use one", low=1, high=256
    )
    round_timeout: float = setting(
        3600.0, "seconds to wait for a round's replies", above=0, high=100_000_000
    )
    data_root: str = setting(
        "", "folder of hub-style parquet datasets, relative to the current directory"
    )
    server_data: str = setting(
        "", "file of test data on the server, if nodes have data of their own"
    )
    results_dir: str = setting("runs", "folder of run folders, relative to the current directory")
    run_name: str = setting(
        "", "name of the run and its folder; empty = made from settings and time"
    )
    checkpoint_every: int = setting(1, "rounds between checkpoints; 0 = none", low=0)
    resume: bool = setting(False, "resume the interrupted run named run-name")
    superlink: str = setting(
        "", "recorded only: the connection that the run was submitted to, by --superlink"
    )
    tracking: str = setting(
        "none", "trackers, separated by commas: mlflow, tensorboard, wandb; or none"
    )
