"""The registry of the clusters that are up: one file for each, in a folder below the runs.

`coordlab up` starts a cluster that stays until `coordlab down`. It writes the file
`<runs>/.up/<name>.json` (its claim of the name), from which other commands learn the port at which
it takes orders, and the secret token that an order needs. Only the file's owner can read it.

A cluster removes its claim when it goes down. If it is killed, the claim remains. The next command
then finds that nothing listens at the port, says so, and removes the claim and what else the
cluster has left behind.

In this module `runs` is the folder of all runs.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from chaos.standing.control import SilentCluster, Unreachable, ask_at
from chaos.standing.messages import Answer, PresenceRequest, Request

FOLDER = ".up"
"""A hidden folder, so that it is not taken for a run directory."""
DEFAULT_NAME = "lab"
_OWNER_ONLY = 0o600  # mode of the files: other users must not read the token
_CLAIM_ATTEMPTS = 100
"""How often it is tried to claim a name before giving up.

An attempt that meets the claim of a dead cluster only removes this claim; then another one follows.
"""
_PRESENCE_TIMEOUT_S = 5.0
"""Longest wait for the answer to a PresenceRequest. A cluster that takes longer counts as alive."""


class StandingCluster(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a claim. The cluster may have died since.

    - `pid`: its process.
    - `port`, `token`: orders go to this port of the loopback address, with this token.
    - `bootstrap`: the addresses of its brokers for Kafka clients.
    """

    name: str
    pid: int
    port: int
    token: str
    run_directory: str
    runtime: str
    started_at: str
    bootstrap: tuple[str, ...] = ()

    def ask(self, request: Request, *, timeout_s: float | None = None) -> Answer:
        """Ask the cluster. Raises: SilentCluster; Unreachable if nothing listens there."""
        return ask_at(self.port, self.token, request, timeout_s=timeout_s)


class NameTaken(Exception):
    """A cluster of this name is up; the message has its process and run directory."""


class NoCluster(Exception):
    """The cluster that the command means is not up, or several could be meant.

    The message lists the clusters that are up. `none_is_up` is True if there are none at all.
    """

    def __init__(self, words: str, *, none_is_up: bool = False) -> None:
        super().__init__(words)
        self.none_is_up = none_is_up


class DeadCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster that died without removing its file; the file has been removed since."""

    cluster: StandingCluster

    def __str__(self) -> str:
        cluster = self.cluster
        return (
            f"the cluster `{cluster.name}` (process {cluster.pid}) has died without a word: its "
            f"claim of the name is removed, its run is in {cluster.run_directory}"
        )


def claim(runs: Path, cluster: StandingCluster) -> tuple[DeadCluster, ...]:
    """Claim the cluster's name; return the dead clusters whose claims of it were removed.

    Raises: NameTaken; OSError.
    """
    folder = runs / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{cluster.name}-{cluster.pid}-{cluster.port}"
    _write_for_owner(unfinished, cluster)
    died: list[DeadCluster] = []
    try:
        for _ in range(_CLAIM_ATTEMPTS):
            try:
                # The whole file is written first, and then linked, for two reasons: the link fails
                # if the name is taken, and no other process can read a partly written file.
                os.link(unfinished, _path(runs, cluster.name))
            except FileExistsError:
                died += _remove_if_dead(runs, cluster.name)
            else:
                return tuple(died)
        # In every attempt another cluster had the name, and all of them were dead or gone then.
        raise NameTaken(f"the name `{cluster.name}` is claimed again and again in {folder}")
    finally:
        unfinished.unlink(missing_ok=True)


def update(runs: Path, cluster: StandingCluster) -> None:
    """Replace the content of this process's own file. Raises: OSError."""
    unfinished = runs / FOLDER / f".{cluster.name}-{cluster.pid}-{cluster.port}"
    _write_for_owner(unfinished, cluster)
    unfinished.replace(_path(runs, cluster.name))


def release(runs: Path, cluster: StandingCluster) -> None:
    """Remove this process's own claim, if the name is still claimed by this cluster."""
    path = _path(runs, cluster.name)
    known = _read(path)
    if known is not None and known.token == cluster.token:
        path.unlink(missing_ok=True)


def clusters_up(runs: Path) -> tuple[tuple[StandingCluster, ...], tuple[DeadCluster, ...]]:
    """Return the clusters that are up, and the dead ones; remove the claims of the dead ones."""
    up: list[StandingCluster] = []
    died: list[DeadCluster] = []
    for path in sorted((runs / FOLDER).glob("*.json")):
        cluster = _read(path)
        if cluster is None:
            continue
        if _is_dead(cluster):
            died += _remove(runs, cluster)
        else:
            up.append(cluster)
    return tuple(up), tuple(died)


def find_cluster(runs: Path, name: str | None) -> tuple[StandingCluster, tuple[DeadCluster, ...]]:
    """Return the cluster that a command means, and the dead clusters, whose claims are removed.

    If the user gave no name (`name` is None), the command means the only cluster that is up. If
    several are up, it means the one with the default name.
    Raises: NoCluster. Its message begins with the dead clusters.
    """
    up, died = clusters_up(runs)
    names = " and ".join(f"`{cluster.name}`" for cluster in up)
    words = "".join(f"{dead}\n" for dead in died)
    wanted = DEFAULT_NAME if name is None else name

    for cluster in up:
        if cluster.name == wanted or (name is None and len(up) == 1):
            return cluster, died
    if name is not None:
        known = f"; {names} {'is' if len(up) == 1 else 'are'} up" if up else "; none is up"
        raise NoCluster(f"{words}no cluster `{name}` is up in {runs}{known}", none_is_up=not up)
    if up:
        raise NoCluster(f"{words}{names} are up in {runs}: name one")
    raise NoCluster(f"{words}no cluster is up in {runs}", none_is_up=True)


def _remove_if_dead(runs: Path, name: str) -> Iterator[DeadCluster]:
    """Remove the claim of a dead cluster. Raises: NameTaken if the cluster lives."""
    cluster = _read(_path(runs, name))
    if cluster is None:  # the other cluster has released the name since the caller's attempt
        return
    if not _is_dead(cluster):
        raise NameTaken(
            f"a cluster `{name}` is up already: process {cluster.pid}, since "
            f"{cluster.started_at}, in {cluster.run_directory}"
        )
    yield from _remove(runs, cluster)


def _remove(runs: Path, cluster: StandingCluster) -> Iterator[DeadCluster]:
    """Remove the claim of a dead cluster; yield it, unless another process was first.

    Two processes may find the same dead claim at the same time:

    1. Process A removes the dead claim, and claims the name for its own cluster.
    2. Process B removes the file, too. But now it is the valid claim of A.

    So a process first moves the file aside, which only one of them can do, and looks at the token
    in it. If this is not the token of the dead cluster, the process puts the file back, unless the
    name was claimed again in the meantime.
    """
    path = _path(runs, cluster.name)
    aside = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        path.replace(aside)
    except FileNotFoundError:
        return
    moved = _read(aside)
    if moved is not None and moved.token != cluster.token:
        with suppress(FileExistsError):
            os.link(aside, path)
        aside.unlink(missing_ok=True)
        return
    aside.unlink(missing_ok=True)
    _remove_leavings(cluster)
    yield DeadCluster(cluster=cluster)


def _remove_leavings(cluster: StandingCluster) -> None:
    """Remove a killed cluster's disks, and the file with its nodes' addresses; keep its trace."""
    if not cluster.run_directory:  # the cluster died before its directory was entered (`update`)
        return
    # Imported here because a command seldom needs these modules, and they would double the time of
    # its start.
    from cluster.realtime.listeners_file import remove_listeners  # noqa: PLC0415
    from cluster.realtime.machine_processes import remove_disks  # noqa: PLC0415

    directory = Path(cluster.run_directory)
    with suppress(OSError):
        remove_disks(directory)
        remove_listeners(directory)


def _is_dead(cluster: StandingCluster) -> bool:
    """Return True if no process that accepts the token listens at the cluster's port."""
    try:
        cluster.ask(PresenceRequest(), timeout_s=_PRESENCE_TIMEOUT_S)
    except Unreachable:
        return True
    except SilentCluster:  # its process still has the port, but is paused or too busy to answer
        return False
    return False


def _read(path: Path) -> StandingCluster | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=StandingCluster)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise NoCluster(f"{path} cannot be read: {error}") from error


def _path(runs: Path, name: str) -> Path:
    return runs / FOLDER / f"{name}.json"


def _write_for_owner(path: Path, cluster: StandingCluster) -> None:
    # A killed process may have left a file here. It is removed, because other users may be able to
    # read it.
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
    with os.fdopen(file, "wb") as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(cluster), indent=2) + b"\n")
