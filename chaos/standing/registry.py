"""The registry of the clusters that are up, with a file for each cluster.

`coordlab up` starts a cluster that stays until `coordlab down`. The cluster writes the file
`<runs>/.up/<name>.json`, which is its claim of the name. From this file other commands learn the
port at which the cluster takes orders, and the secret token that each order needs. Only the owner
of the file can read it.

A cluster removes its claim when it goes down. If its process is killed, the claim remains. The next
command then finds that nothing listens at the port. It reports this, and removes the claim and all
other files that are of no use any more.

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
"""Name of the registry's folder. The dot hides the folder from code that looks for runs."""
DEFAULT_NAME = "lab"
_OWNER_ONLY = 0o600  # mode of the files, so that other users cannot read the token
_CLAIM_ATTEMPTS = 100
"""Maximum number of attempts to claim a name.

If an attempt meets the claim of a dead cluster, it only removes this claim. So at least one more
attempt must follow.
"""
_PRESENCE_TIMEOUT_S = 5.0
"""Longest wait for the answer to a PresenceRequest.

If a cluster takes longer to answer, it counts as alive, too.
"""


class StandingCluster(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a claim. The cluster may have died after the claim was written.

    - `pid`: the id of the cluster's process.
    - `port`, `token`: the port of the loopback address to which orders are sent, and the token that
      they need.
    - `bootstrap`: the addresses of the brokers for Kafka clients.
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
        """Send a request to the cluster; return its answer. Raises: SilentCluster; Unreachable."""
        return ask_at(self.port, self.token, request, timeout_s=timeout_s)


class NameTaken(Exception):
    """A cluster with this name is up already, or other processes keep claiming the name.

    The message has the process and the run directory of the cluster that is up.
    """


class NoCluster(Exception):
    """The cluster that the command means is not up, or several could be meant.

    The message lists the clusters that are up. `none_is_up` is True if there are none at all.
    """

    def __init__(self, words: str, *, none_is_up: bool = False) -> None:
        super().__init__(words)
        self.none_is_up = none_is_up


class DeadCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster that died without removing its claim. The claim was removed afterwards."""

    cluster: StandingCluster

    def __str__(self) -> str:
        cluster = self.cluster
        return (
            f"the cluster `{cluster.name}` (process {cluster.pid}) has died without a word: its "
            f"claim of the name is removed, its run is in {cluster.run_directory}"
        )


def claim(runs: Path, cluster: StandingCluster) -> tuple[DeadCluster, ...]:
    """Claim the name of a cluster.

    If dead clusters had the same name, their claims are removed. Return these dead clusters.

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
                # The whole file was written first, and only now gets its final name, by a link. So
                # no other process can read a partly written file. The link fails if the name is
                # taken.
                os.link(unfinished, _path(runs, cluster.name))
            except FileExistsError:
                died += _remove_if_dead(runs, cluster.name)
            else:
                return tuple(died)
        # In each attempt another cluster had the name, but this cluster was dead or gone a moment
        # later.
        raise NameTaken(f"the name `{cluster.name}` is claimed again and again in {folder}")
    finally:
        unfinished.unlink(missing_ok=True)


def update(runs: Path, cluster: StandingCluster) -> None:
    """Replace the claim of this process's cluster. Raises: OSError."""
    unfinished = runs / FOLDER / f".{cluster.name}-{cluster.pid}-{cluster.port}"
    _write_for_owner(unfinished, cluster)
    unfinished.replace(_path(runs, cluster.name))


def release(runs: Path, cluster: StandingCluster) -> None:
    """Remove the claim of this process's cluster, unless another cluster has the name now."""
    path = _path(runs, cluster.name)
    known = _read(path)
    if known is not None and known.token == cluster.token:
        path.unlink(missing_ok=True)


def clusters_up(runs: Path) -> tuple[tuple[StandingCluster, ...], tuple[DeadCluster, ...]]:
    """Return the clusters that are up, and the dead clusters, whose claims this call removes."""
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
    several clusters are up, the command means the one with the default name.

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
        verb = "is" if len(up) == 1 else "are"
        known = f"; {names} {verb} up" if up else "; none is up"
        raise NoCluster(f"{words}no cluster `{name}` is up in {runs}{known}", none_is_up=not up)
    if up:
        raise NoCluster(f"{words}{names} are up in {runs}: name one")
    raise NoCluster(f"{words}no cluster is up in {runs}", none_is_up=True)


def _remove_if_dead(runs: Path, name: str) -> Iterator[DeadCluster]:
    """Remove the claim of the name, and yield its cluster, if this cluster is dead.

    Raises: NameTaken if the cluster is alive.
    """
    cluster = _read(_path(runs, name))
    if cluster is None:  # the other cluster has released the name after the caller's attempt
        return
    if not _is_dead(cluster):
        raise NameTaken(
            f"a cluster `{name}` is up already: process {cluster.pid}, since "
            f"{cluster.started_at}, in {cluster.run_directory}"
        )
    yield from _remove(runs, cluster)


def _remove(runs: Path, cluster: StandingCluster) -> Iterator[DeadCluster]:
    """Remove the claim of a dead cluster, and yield the cluster.

    Nothing is yielded if another process has removed the claim before. Two processes may find the
    same dead claim at the same time. If they simply removed the file, this could happen:

    1. Process A removes the dead claim, and claims the name for its own cluster.
    2. Process B removes the file, too. But by now it is the valid claim of A.

    So a process first moves the file aside. Only one process can do this. Then the process looks at
    the token in the file. If this is not the token of the dead cluster, the process puts the file
    back, unless the name was claimed again in the meantime.
    """
    path = _path(runs, cluster.name)
    aside = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        path.replace(aside)
    except FileNotFoundError:
        return
    moved = _read(aside)
    # If the token is another, the moved file is the valid claim of a new cluster.
    if moved is not None and moved.token != cluster.token:
        with suppress(FileExistsError):
            os.link(aside, path)
        aside.unlink(missing_ok=True)
        return
    aside.unlink(missing_ok=True)
    _remove_leavings(cluster)
    yield DeadCluster(cluster=cluster)


def _remove_leavings(cluster: StandingCluster) -> None:
    """Remove the disks of a killed cluster, and the file with the addresses of its nodes.

    The trace of the cluster stays.
    """
    if not cluster.run_directory:  # the cluster died before `update` added the directory
        return
    # These modules are imported here, because commands seldom need them, and they would double the
    # time in which a command starts.
    from cluster.realtime.listeners_file import remove_listeners  # noqa: PLC0415
    from cluster.realtime.machine_processes import remove_disks  # noqa: PLC0415

    directory = Path(cluster.run_directory)
    with suppress(OSError):  # a file that cannot be removed stays
        remove_disks(directory)
        remove_listeners(directory)


def _is_dead(cluster: StandingCluster) -> bool:
    """Return True if no process listens at the cluster's port that accepts the token."""
    try:
        cluster.ask(PresenceRequest(), timeout_s=_PRESENCE_TIMEOUT_S)
    except Unreachable:
        return True
    except SilentCluster:  # the process still has the port, but is paused or too busy to answer
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
    # A killed process may have left a file at this path. The file is removed first, because other
    # users may be able to read it.
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
    with os.fdopen(file, "wb") as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(cluster), indent=2) + b"\n")
