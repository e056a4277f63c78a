"""The listeners file: addresses of a run's nodes, in a file that only its owner can read.

With this file, another program can use the cluster of a run as a client (`outside_client`). The
driver, which conducts the run, writes it whenever a node has started or ended, and removes it at
the end of the run. The file also contains the token without which no node accepts a connection, so
a user who can read the file can connect. If the driver is killed, the file stays, but no process
listens at its addresses.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cluster.realtime.clock import RunClock
from cluster.realtime.tcp import LINK_VERSION, ProcessAddress
from protocol.ids import NodeName

FILE_NAME = "listeners.json"
"""Name of the file in the run's directory."""
_OWNER_ONLY = 0o600
"""File mode: the owner may read and write, other users have no access."""


class Listeners(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a client from outside needs to connect to a run's nodes.

    `directory` has the address of every running node. `clock` is the run's clock on the driver's
    machine. If `trace_messages` is true, the run's nodes trace their messages, and the client does
    the same.
    """

    link_version: int = LINK_VERSION
    run_id: str
    seed: int
    token: str
    clock: RunClock
    trace_messages: bool
    directory: Mapping[NodeName, ProcessAddress]


class NoListeners(Exception):
    """A run directory has no readable listeners file."""


def write_listeners(run_dir: Path, listeners: Listeners) -> None:
    """Write the file atomically: a reader gets the old or the new content.

    Raises: OSError.
    """
    path = run_dir / FILE_NAME
    unfinished = path.with_name(f".{FILE_NAME}.unfinished")
    # A killed writer may have left this file. O_EXCL below demands a new file, which no other user
    # can have opened.
    unfinished.unlink(missing_ok=True)
    file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY)
    with os.fdopen(file, "wb") as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(listeners), indent=2) + b"\n")
    unfinished.replace(path)


def read_listeners(run_dir: Path) -> Listeners:
    """Return the file's content. Raises: NoListeners if it is missing or not readable."""
    path = run_dir / FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Listeners)
    except FileNotFoundError as error:
        raise NoListeners(f"there is no {path}") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise NoListeners(f"{path} cannot be read: {error}") from error


def remove_listeners(run_dir: Path) -> None:
    """Remove the file if there is one. Raises: OSError."""
    (run_dir / FILE_NAME).unlink(missing_ok=True)
