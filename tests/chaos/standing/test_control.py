"""How commands such as `inject`, `status` and `down` reach a cluster that another process runs.

The command `up` starts a cluster that runs until `down` ends it. The process of the cluster listens
at a port. It also claims the name of the cluster (by default `lab`): it writes a file with the
name, the port and a secret token into the folder of runs. This file is the cluster's claim. Another
command finds the cluster by its claim, and sends a request to the port. A thread of the cluster's
process receives the request, and passes it through a Mailbox to the event loop of the run.

Most requests are orders, which change the run. A PresenceRequest only asks whether the cluster is
there.

If the function `ask_at` gets no answer, it raises one of two errors:

- Unreachable: certainly no cluster with this token listens at the port.
- SilentCluster: the cluster may be alive, and may have carried out the order.
"""

import socket
import stat
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import msgspec
import pytest

from chaos.standing.claim import ClaimedName
from chaos.standing.control import (
    LOOPBACK,
    MAX_FRAME_BYTES,
    ControlServer,
    SilentCluster,
    Unreachable,
    ask_at,
)
from chaos.standing.mailbox import Mailbox
from chaos.standing.messages import (
    Answer,
    DownAnswer,
    DownRequest,
    Envelope,
    HealAnswer,
    HealRequest,
    OrderRefusal,
    PresenceAnswer,
    PresenceRequest,
    RefusalKind,
    Request,
    StatusRequest,
)
from chaos.standing.registry import (
    FOLDER,
    NameTaken,
    NoCluster,
    StandingCluster,
    claim,
    clusters_up,
    find_cluster,
)

TOKEN = "secret"
VERDICT = DownAnswer(
    exit_code=0, outcome="completed", verdict="pass", reasons=(), run_directory="runs/lab/x"
)


@pytest.fixture
def server() -> Iterator[ControlServer]:
    """Start a server that gives every order the same answer: no fault was healed."""

    def answer_that_nothing_was_healed(_request: Request) -> Answer:
        return HealAnswer(faults=())

    server = ControlServer(answer_that_nothing_was_healed, token=TOKEN)
    yield server
    server.close()


def send_raw(port: int, content: bytes) -> bytes:
    """Send bytes, close the sending side, and return the bytes of the answer."""
    with socket.create_connection((LOOPBACK, port)) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(1 << 16)


def dead_cluster(name: str, run_directory: Path) -> StandingCluster:
    """Return the claim of a cluster that has died: nobody listens at its port any more."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))  # 0: any free port, which is free again after this block
        port = probe.getsockname()[1]
    return StandingCluster(
        name=name,
        pid=4711,
        port=port,
        token=TOKEN,
        run_directory=str(run_directory),
        runtime="local",
        started_at="2026-01-01T00:00:00+00:00",
    )


def test_a_request_is_answered(server: ControlServer) -> None:
    """The server's handler answers an order, and the server itself answers a PresenceRequest."""
    assert ask_at(server.port, TOKEN, HealRequest()) == HealAnswer(faults=())
    assert ask_at(server.port, TOKEN, PresenceRequest()) == PresenceAnswer()


def test_a_caller_without_the_token_gets_no_answer(server: ControlServer) -> None:
    """A caller with a wrong token gets no answer.

    The error depends on the request:

    - HealRequest is an order. The caller cannot know whether the order was carried out, so the
      error is SilentCluster.
    - A cluster answers every PresenceRequest that has its token. So if there is no answer, another
      program listens at the port, and the error is Unreachable.
    """
    with pytest.raises(SilentCluster):
        ask_at(server.port, "guessed", HealRequest())
    with pytest.raises(Unreachable, match="another program"):
        ask_at(server.port, "guessed", PresenceRequest())


def test_a_caller_of_another_version_gets_a_message(server: ControlServer) -> None:
    """The cluster and the caller may be different versions of the program.

    Then they may not understand each other, and the answer says so.
    """
    envelope = msgspec.json.encode(Envelope(version=99, token=TOKEN, request=HealRequest()))
    # A message is sent as a frame: a length of four bytes, and then a JSON document of this length.
    answer = send_raw(server.port, struct.pack(">I", len(envelope)) + envelope)
    refusal = msgspec.json.decode(answer[4:], type=OrderRefusal)
    assert refusal.kind is RefusalKind.UNKNOWN
    assert "this is 99" in refusal.problems[0]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0",
        struct.pack(">I", MAX_FRAME_BYTES + 1),
        struct.pack(">I", 100) + b"half",
        struct.pack(">I", 4) + b"junk",
        struct.pack(">I", 2) + b"{}",
    ],
    ids=["nothing", "half a length", "too long", "half a frame", "no JSON", "no request"],
)
def test_a_broken_frame_ends_only_its_connection(server: ControlServer, content: bytes) -> None:
    """A frame is a length of four bytes, and a JSON document of this length.

    Whoever sends something else gets no answer, and the next caller is served.
    """
    assert send_raw(server.port, content) == b""
    assert ask_at(server.port, TOKEN, PresenceRequest()) == PresenceAnswer()


def test_closed_server_is_unreachable(server: ControlServer) -> None:
    """When a server has ended, a command gets an error at once, and need not wait for an answer."""
    server.close()
    with pytest.raises(Unreachable):
        ask_at(server.port, TOKEN, PresenceRequest())


def test_a_name_is_claimed_once_by_a_file_that_only_its_owner_can_read(tmp_path: Path) -> None:
    """The file is secret, because it has the token. It is removed when the cluster ends."""
    with ClaimedName(tmp_path, "blue", runtime="local", mailbox=Mailbox()) as claimed:
        claimed.publish(run_directory=tmp_path / "blue", bootstrap=("127.0.0.1:9092",))
        path = tmp_path / FOLDER / "blue.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(NameTaken, match="a cluster `blue` is up already"):
            ClaimedName(tmp_path, "blue", runtime="local", mailbox=Mailbox())
        cluster, dead_clusters = find_cluster(tmp_path, None)
        assert (cluster.name, cluster.bootstrap) == ("blue", ("127.0.0.1:9092",))
        assert dead_clusters == ()
        assert cluster.ask(PresenceRequest()) == PresenceAnswer()
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_dead_cluster_is_reported_and_its_files_removed(tmp_path: Path) -> None:
    """After SIGKILL the claim is still there, but the next command finds that nobody listens.

    The command removes the claim and what only a living cluster needs: the disks of its nodes, and
    the file with the addresses at which they listened. The trace is kept.
    """
    run = tmp_path / "lab" / "x"
    (run / "disks" / "broker-0").mkdir(parents=True)
    (run / "listeners.json").write_text("{}")
    (run / "trace").mkdir()
    claim(tmp_path, dead_cluster("lab", run))

    clusters, dead_clusters = clusters_up(tmp_path)

    assert clusters == ()
    assert "`lab` (process 4711) has died without a word" in str(dead_clusters[0])
    assert str(run) in str(dead_clusters[0])
    assert sorted(path.name for path in run.iterdir()) == ["trace"]
    assert clusters_up(tmp_path) == ((), ())  # the next command reports nothing


def test_the_name_of_a_dead_cluster_can_be_claimed(tmp_path: Path) -> None:
    """A killed cluster cannot remove its claim, so the next cluster with this name removes it."""
    claim(tmp_path, dead_cluster("lab", tmp_path / "lab"))
    with ClaimedName(tmp_path, "lab", runtime="local", mailbox=Mailbox()) as claimed:
        assert [report.cluster.pid for report in claimed.died] == [4711]
        assert len(clusters_up(tmp_path)[0]) == 1


def test_command_finds_the_cluster_that_it_names_or_the_only_or_the_default_one(
    tmp_path: Path,
) -> None:
    """A command may name its cluster.

    A command without a name means one of the clusters that are up:

    - If only one cluster is up, the command means this cluster.
    - If several clusters are up, the command means the cluster `lab`.
    - If several clusters are up, but not `lab`, there is an error with their names.
    """
    with pytest.raises(NoCluster, match="no cluster is up"):
        find_cluster(tmp_path, None)
    with ClaimedName(tmp_path, "blue", runtime="local", mailbox=Mailbox()):
        with pytest.raises(NoCluster, match=r"no cluster `green` is up in .*; `blue` is up"):
            find_cluster(tmp_path, "green")
        with ClaimedName(tmp_path, "green", runtime="local", mailbox=Mailbox()):
            with pytest.raises(NoCluster, match=r"`blue` and `green` are up in .*: name one"):
                find_cluster(tmp_path, None)
            with ClaimedName(tmp_path, "lab", runtime="local", mailbox=Mailbox()):
                assert find_cluster(tmp_path, None)[0].name == "lab"
                assert find_cluster(tmp_path, "green")[0].name == "green"


def test_a_starting_cluster_refuses_orders_and_keeps_a_request_to_end(tmp_path: Path) -> None:
    """Orders are refused until the cluster has started, except for `down`.

    `down` waits for the verdict of the run. The method `conclude` gives the verdict to the callers
    that are waiting, and to later callers.
    """
    mailbox = Mailbox()
    answers: list[Answer] = []
    with ClaimedName(tmp_path, "lab", runtime="local", mailbox=mailbox) as claimed:
        cluster, _ = find_cluster(tmp_path, None)
        refusal = cluster.ask(StatusRequest())
        assert isinstance(refusal, OrderRefusal)
        assert refusal.problems == ("the cluster is starting",)
        caller = threading.Thread(target=lambda: answers.append(cluster.ask(DownRequest())))
        caller.start()
        claimed.conclude(VERDICT)
        caller.join(10)  # seconds
        assert answers == [VERDICT]
        assert cluster.ask(DownRequest()) == VERDICT


class SignallingMailbox(Mailbox):
    """A mailbox that signals the arrival of a request to end the run."""

    def __init__(self) -> None:
        super().__init__()
        self.down_requested = threading.Event()

    def ask(self, request: Request) -> "Future[Answer]":
        answer = super().ask(request)
        if isinstance(request, DownRequest):
            self.down_requested.set()
        return answer


def test_a_cluster_that_ends_without_a_verdict_reports_it(tmp_path: Path) -> None:
    """`down` waits for the verdict of the run. If the run fails, `down` must still end."""
    answers: list[Answer] = []
    mailbox = SignallingMailbox()
    with ClaimedName(tmp_path, "lab", runtime="local", mailbox=mailbox):
        cluster, _ = find_cluster(tmp_path, None)
        caller = threading.Thread(target=lambda: answers.append(cluster.ask(DownRequest())))
        caller.start()
        # The end of the `with` block ends the cluster. This must happen after the request, so wait
        # for the request, for 10 s at most.
        assert mailbox.down_requested.wait(10)
    caller.join(10)
    (answer,) = answers
    assert isinstance(answer, OrderRefusal)
    assert answer.problems == ("the cluster `lab` ended without a verdict",)
