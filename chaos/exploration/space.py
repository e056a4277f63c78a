"""The space that an exploration draws from: an experiment without faults, and what varies.

DRAFT: the loader with errors that name the place is still to come.
"""

from pathlib import Path
from typing import Any

import msgspec

from chaos.experiment import Duration, Name

FOLDER = Path(__file__).resolve().parents[2] / "explorations"


class FaultSpace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which faults are drawn."""

    window: Duration = "30s"
    """How long faults are injected, from the steady state on."""
    gaps: tuple[Duration, ...] = ("1s", "3s", "10s")
    """Mean times between two faults; a seed draws one."""
    kinds: dict[str, int]
    """The faults, with their weights; a seed leaves some of them out."""
    durations: tuple[Duration, ...] = ("100ms", "500ms", "2s", "5s", "10s", "20s")
    """How long those last that have an end."""


class Space(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A space of schedules: its file, in `explorations/`."""

    version: int
    name: Name
    question: str
    experiment: dict[str, Any]
    """An experiment without faults, as its own file would have it."""
    settings: dict[str, tuple[Any, ...]] = {}
    """Dotted paths into the experiment, each with the values from which a seed draws one."""
    faults: FaultSpace


def load_space(name_or_path: str) -> Space:
    """Return the space of this name in `explorations/`, or in this file."""
    path = Path(name_or_path)
    if path.suffix not in {".yaml", ".yml"}:
        path = FOLDER / f"{name_or_path}.yaml"
    return msgspec.yaml.decode(path.read_bytes(), type=Space)
