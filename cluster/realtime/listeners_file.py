"""Where the nodes of a run on Ray listen, in a file that its owner alone can read.

The run's driver writes it whenever a node comes up or goes, and removes it when the run stops. It
holds the token by which the nodes know whom to let in: whoever can read it may talk to the cluster
as any client may (`outside_client`). A run whose driver was killed leaves the file, and nobody
listens any more.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cluster.realtime.clock import RunClock
from cluster.realtime.tcp import LINK_VERSION, ProcessAddress
from protocol.ids import NodeName

FILE_NAME = "listeners.json"
"""In the run's directory."""
_OWNER_ONLY = 0o600


class Listeners(msgspec.Struct, frozen=True, kw_only=True):
    """What a client from outside needs to talk to a run's nodes.

    Shape: `directory` names every node that is up; `clock` is that of the driver's machine;
    `trace_messages` says whether the run's nodes trace theirs.
    """

    link_version: int = LINK_VERSION
    run_id: str
    seed: int
    token: str
    clock: RunClock
    trace_messages: bool
    directory: Mapping[NodeName, ProcessAddress]


class NoListeners(Exception):
    """A run directory that says of no node where it listens."""


def write_listeners(run_dir: Path, listeners: Listeners) -> None:
    """Write the file in one step: a reader meets the old content or the new. Raises: OSError."""
    path = run_dir / FILE_NAME
    unfinished = path.with_name(f".{FILE_NAME}.unfinished")
    unfinished.unlink(missing_ok=True)  # of a writer that was killed; it may be open to others
    file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY)
    with os.fdopen(file, "wb") as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(listeners), indent=2) + b"\n")
    unfinished.replace(path)


def read_listeners(run_dir: Path) -> Listeners:
    """Return what the file says. Raises: NoListeners if there is none, or not one to be read."""
    path = run_dir / FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Listeners)
    except FileNotFoundError as error:
        raise NoListeners(f"there is no {path}") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise NoListeners(f"{path} cannot be read: {error}") from error


def remove_listeners(run_dir: Path) -> None:
    """Remove the file; that there is none does no harm. Raises: OSError."""
    (run_dir / FILE_NAME).unlink(missing_ok=True)
