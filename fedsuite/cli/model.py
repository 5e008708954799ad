"""The commands that use the model of a run: ``predict``, ``evaluate``, ``export``."""

from __future__ import annotations

import json
import math
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedsuite.cli.options import ResultsDir, RunName
from fedsuite.cli.parsing import Command, positive, whole_number
from fedsuite.core.settings import UserError
from fedsuite.core.text import clean_line
from fedsuite.metrics import find_metric
from fedsuite.records.folder import DEFAULT_RESULTS, RunFolder, find_run, seek_run

if TYPE_CHECKING:
    from fedsuite.inference.data import Data
    from fedsuite.inference.model import TrainedModel

commands = typer.Typer()
MOST_CLASSES = 20
DataName = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="a .csv or .parquet file, an image, a folder of such files, a folder with one "
        "subfolder of images per class, or the word test: the test split of the run (a folder of "
        "that name is ./test)",
    ),
]
ClientNumber = Annotated[
    int | None,
    typer.Option(
        "--client",
        metavar="N",
        parser=whole_number,
        help="use this client's own model (personal methods), and with test its own test split",
        show_default=False,
    ),
]
Resize = Annotated[
    bool,
    typer.Option(
        "--resize",
        help="resize images of another size, as in training; otherwise they are refused",
        show_default=False,
    ),
]


@commands.command(cls=Command)
def predict(
    name: RunName,
    data: DataName,
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="CSV file to write (default: predictions.csv)",
            show_default=False,
        ),
    ] = "predictions.csv",
    client: ClientNumber = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            metavar="K",
            parser=positive,
            help="write the K most probable classes instead of the probabilities of all",
            show_default=False,
        ),
    ] = None,
    resize: Resize = False,
    results_dir: ResultsDir = DEFAULT_RESULTS,
) -> None:
    """Predict the classes of rows, images or texts with the model of a run."""
    from fedsuite.core.files import write_atomically
    from fedsuite.core.text import counted

    model, rows = _open(name, data, client, resize, results_dir)
    predictions = model.predict_data(rows)
    text = predictions.to_csv(rows.label_names, rows.files, top or 0)
    try:
        write_atomically(Path(output), text.encode())
    except OSError as error:
        raise _cannot_write(output, error) from None
    print(f"{counted(rows.count, 'row')} predicted to {output}")
    if rows.label_names:
        pairs = zip(predictions.names, rows.label_names, strict=True)
        right = sum(predicted == label for predicted, label in pairs)
        print(f"{right} of {rows.count} as labelled: accuracy {right / rows.count:.4f}")


@commands.command(cls=Command)
def evaluate(
    name: RunName,
    data: DataName,
    client: ClientNumber = None,
    resize: Resize = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="print JSON instead of a table", show_default=False)
    ] = False,
    results_dir: ResultsDir = DEFAULT_RESULTS,
) -> None:
    """Score the model of a run on labelled data: accuracy, F1, loss, accuracy per class."""
    model, rows = _open(name, data, client, resize, results_dir)
    if rows.labels is None:
        column = model.description.labels.column
        raise UserError(
            f"'{data}' has no labels to compare with: no column '{column}', nor folders named by "
            "class. `fedsuite predict` needs none."
        )
    labels = rows.labels()
    score = model.predict_data(rows).score(labels)
    found = {
        "run": name,
        "model": "global" if client is None else f"client {client}",
        "data": data,
        "rows": score.total,
        "correct": score.correct,
        **score.record(),
    }
    names = model.description.labels.classes
    of_class = {names[int(k)]: share for k, share in found.pop("class_accuracy").items()}
    if as_json:
        loss = score.loss if math.isfinite(score.loss) else None
        print(json.dumps(found | {"loss": loss, "class_accuracy": of_class}, indent=2))
        return
    from rich.table import Table
    from rich.text import Text

    from fedsuite.terminal.console import make_console

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in found.items():
        text = f"{value:.4f}" if isinstance(value, float) else str(value)
        table.add_row(find_metric(name).title, Text(text, "bold"))
    for name, share in islice(of_class.items(), MOST_CLASSES):
        table.add_row(f"accuracy of {clean_line(name, 40)}", Text(f"{share:.4f}", "bold"))
    if len(of_class) > MOST_CLASSES:
        table.add_row("", f"and of {len(of_class) - MOST_CLASSES} more classes; see --json")
    make_console().print(table, highlight=False)


@commands.command(cls=Command)
def export(
    name: RunName,
    form: Annotated[
        Literal["onnx", "torch"],
        typer.Option(
            "--format",
            help="onnx: for ONNX Runtime and others (pip install 'fedsuite[onnx]'); torch: for "
            "torch.export.load",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="file to write (default: model.onnx or model.pt2)",
            show_default=False,
        ),
    ] = "",
    client: ClientNumber = None,
    results_dir: ResultsDir = DEFAULT_RESULTS,
) -> None:
    """Write the model of a run as a file that can be used without fedsuite."""
    folder = _folder(name, results_dir)
    from fedsuite.inference.export import SUFFIXES, export_model
    from fedsuite.inference.model import load_model

    path = Path(output or f"model{SUFFIXES[form]}")
    model = load_model(folder, client, device="cpu")
    try:
        off = export_model(model, form, path)
    except OSError as error:
        raise _cannot_write(str(path), error) from None
    print(f"exported to {path}; its probabilities differ from the run's by at most {off:.1g}")


def _open(
    name: str, data: str, client: int | None, resize: bool, results_dir: str
) -> tuple[TrainedModel, Data]:
    folder = _folder(name, results_dir)
    from fedsuite.inference.data import open_data
    from fedsuite.inference.model import load_model

    model = load_model(folder, client)
    return model, open_data(data, folder, model.description, client, resize)


def _folder(name: str, results_dir: str) -> Path:
    """Find a run's folder, or that of its client in a node's state-dir, which has no settings."""
    node = RunFolder(Path(name).absolute())
    if seek_run(name, results_dir) is None and node.model_description_file.exists():
        return node.path
    return find_run(name, results_dir)


def _cannot_write(output: str, error: OSError) -> UserError:
    return UserError(
        f"invalid value '{output}' for -o: {error.strerror or error}. Choose a file that you can "
        "write."
    )
