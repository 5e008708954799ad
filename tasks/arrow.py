"""pyarrow, imported where it is first used: to open arrays that are in the cache takes none of it.

A deployed client is a new process in every round, and pays for each import.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as csv
    import pyarrow.parquet as pq
else:

    class _OnDemand(ModuleType):
        """A module that is imported when something in it is needed."""

        def __getattr__(self, name: str) -> Any:
            return getattr(import_module(self.__name__), name)

    pa, pc = _OnDemand("pyarrow"), _OnDemand("pyarrow.compute")
    csv, pq = _OnDemand("pyarrow.csv"), _OnDemand("pyarrow.parquet")

__all__ = ["csv", "pa", "pc", "pq"]
