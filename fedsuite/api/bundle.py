"""Pack the record of runs into one file; ``fedsuite bundle`` calls this."""

from __future__ import annotations

import os
from pathlib import Path

from fedsuite.core.files import absolute_path
from fedsuite.core.scratch import scratch_folder
from fedsuite.core.settings import UserError, invalid
from fedsuite.records.folder import DEFAULT_RESULTS


def bundle(
    name: str | os.PathLike[str],
    output: str | os.PathLike[str] = "",
    *,
    models: bool = False,
    results_dir: str | os.PathLike[str] = DEFAULT_RESULTS,
) -> Path:
    """Pack a run, a suite or a folder of runs with its report into a file, and return its path.

    ``output`` ends in ``.tar.zst`` or ``.tar.gz`` (by default it is the folder's name with the
    first, here). Models are packed only with ``models``; their SHA-256 always are.
    :func:`fedsuite.load` and :func:`fedsuite.compare` read the file as they read a folder.
    """
    from fedsuite.records.bundle import ENDINGS, record_files, write_bundle
    from fedsuite.records.collection import find_collection, open_collection
    from fedsuite.records.folder import SuiteFolder
    from fedsuite.report.build import make_report

    folder = find_collection(os.fspath(name), os.fspath(results_dir))
    path = absolute_path(os.fspath(output) or f"{folder.name}{ENDINGS[0]}")
    if not path.name.endswith(ENDINGS):
        raise invalid("-o", output, f"a bundle's name ends in {' or '.join(ENDINGS)}.")
    files: dict[str, Path | bytes] = {}
    for run in open_collection(str(folder)).runs:
        if run.files.is_being_written:
            raise UserError(
                f"The run '{run.name}' is still being written. Wait until it has ended."
            )
        for place, source in record_files(run.files, models).items():
            files[str((run.folder / place).relative_to(folder))] = source
    manifest = SuiteFolder(folder).manifest_file
    if manifest.is_file():
        files[manifest.name] = manifest
    with scratch_folder() as scratch:
        report = scratch / "report"
        make_report(str(folder), report)
        pages = [page for page in report.rglob("*") if page.is_file()]
        files |= {str(page.relative_to(scratch)): page for page in pages}
        try:
            write_bundle(path, folder.name, files)
        except OSError as error:
            reason = f"{error.strerror or error}. Choose a file that you can write."
            raise invalid("-o", path, reason) from None
    return path
