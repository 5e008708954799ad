"""SHA-256 of a run's saved vectors, by which two runs can be told to have the same bits."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedsuite.core.files import read_document
from fedsuite.records.folder import RunFolder

DIGESTS = "models.json"  # in a bundle, which need not have the models themselves


def model_files(files: RunFolder) -> list[Path]:
    """Return a run's files of vectors: its model, its clients' own, what its strategy recorded."""
    places = (files.path, files.client_models)
    return sorted(path for place in places for path in place.glob("*.safetensors"))


def model_digests(files: RunFolder) -> dict[str, str]:
    """Return the SHA-256 of each file of vectors, also of those that a bundle left out."""
    listed = {str(name): str(value) for name, value in read_document(files.path / DIGESTS).items()}
    return listed | {str(p.relative_to(files.path)): sha256(p) for p in model_files(files)}


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
