"""What a grid hears: instructions in a message, copied before the next message overwrites them."""

from __future__ import annotations

import dataclasses

from flwr.app import RecordDict

from fedsuite.core.messages import Instruction, read_instructions, refuse_reference
from fedsuite.core.vector_files import VectorFiles


def instructions_in(content: RecordDict) -> dict[int, Instruction]:
    """Read a cohort's instructions as a simulated node does, and keep their vectors."""
    files = VectorFiles.of(content.config_records["config"])
    found = read_instructions(content, files.resolve if files else refuse_reference)
    return {
        client: dataclasses.replace(one, arrays={n: v.copy() for n, v in one.arrays.items()})
        for client, one in found.items()
    }
