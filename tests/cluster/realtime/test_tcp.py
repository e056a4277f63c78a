"""TCP links between the processes of a run: the order of frames, refusals, and lost peers.

The nodes of a run (brokers, clients) live in several processes. They send each other messages,
called frames here. Each process has one Transport, which holds all its links to other processes.
A link carries frames in one direction only: to answer, the other process dials a link of its own.

The process that dials first sends a Hello. The Hello proves with a token, a secret of the run, that
the caller belongs to the run. It also names the process that the caller wants to reach. If the
listener does not accept the Hello, it closes the connection: the caller is refused.

On the wire a Hello or a frame is its length in 4 bytes, followed by its content in MessagePack (a
compact binary JSON).

In these tests two transports, `a` and `b`, run in one process. Each one is wrapped in a Peer, which
records what the transport reports: the frames that arrived, the processes that it lost, and the
reasons of refusals.
"""

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from cluster.host.frames import CloseFrame, Frame
from cluster.realtime import tcp
from cluster.realtime.tcp import LINK_VERSION, Hello, ProcessAddress, Transport, TransportEvents
from protocol.errors import SimulationError
from protocol.ids import Incarnation, NodeName

TOKEN = "secret"
MAX_FRAME_BYTES = 1_000
"""The limit for frames in these tests."""
LOOPBACK = "127.0.0.1"
A, B = NodeName("node-a"), NodeName("node-b")


@dataclass
class Peer:
    """A Transport that records its callbacks."""

    name: str
    token: str = TOKEN
    max_frame_bytes: int = MAX_FRAME_BYTES
    frames: list[Frame] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """The processes that the transport reported as ended, one entry for each report."""
    refused: list[str] = field(default_factory=list)
    """The reasons for which the transport refused callers, such as "wrong token"."""
    story: list[str] = field(default_factory=list)
    """"frame" for each frame that arrived and "lost" for each lost process, in this order."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every callback, so that `until` checks its condition again."""

    def __post_init__(self) -> None:
        self.transport = Transport(
            process_id=self.name,
            token=self.token,
            events=TransportEvents(
                on_frame=self.on_frame,
                on_peer_lost=self.on_lost,
                on_refused=self.on_refused,
                # A real process flushes its trace before it writes to a link. Here is no trace.
                before_write=lambda: None,
            ),
            nodes=lambda: ((NodeName(self.name), Incarnation(0)),),
            max_frame_bytes=self.max_frame_bytes,
        )

    def on_frame(self, received: Frame) -> None:
        self.frames.append(received)
        self.story.append("frame")
        self.changed.set()

    def on_lost(self, process_id: str, nodes: tuple[NodeName, ...]) -> None:
        self.lost.append(process_id)
        self.story.append("lost")
        self.changed.set()

    def on_refused(self, caller: str, reason: str) -> None:
        self.refused.append(reason)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds, and check it after each callback."""
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@dataclass
class Pair:
    """Two transports that listen, and their addresses. A frame to `b` is sent to `to_b`."""

    a: Peer
    b: Peer
    to_a: ProcessAddress
    to_b: ProcessAddress


def with_pair(body: Callable[[Pair], Awaitable[None]], *, token_of_b: str = TOKEN) -> None:
    """Run `body` with two listening transports, and close them at the end."""

    async def main() -> None:
        a, b = Peer("a"), Peer("b", token=token_of_b)
        pair = Pair(a, b, await a.transport.listen(LOOPBACK), await b.transport.listen(LOOPBACK))
        try:
            await body(pair)
        finally:
            await a.transport.close()
            await b.transport.close()

    asyncio.run(main())


def frame(number: int, *, reason: str = "") -> CloseFrame:
    """Return a frame with this number, by which a test recognises it; `reason` makes it larger."""
    return CloseFrame(source=A, destination=B, connection_id=number, by_client=True, reason=reason)


def packed(message: object) -> bytes:
    """Return the bytes of a message as they are on the wire."""
    payload = msgspec.msgpack.encode(message)
    return struct.pack(">I", len(payload)) + payload


def hello(
    *, token: str = TOKEN, target: str = "b", version: int = LINK_VERSION, caller: str = "raw"
) -> bytes:
    """Return the bytes of a Hello; by default it is from a process `raw`, and `b` accepts it."""
    return packed(
        Hello(version=version, token=token, process_id=caller, target_process_id=target, nodes=())
    )


async def raw_call(address: ProcessAddress, data: bytes) -> None:
    """Send raw bytes, and wait until the listener closes the connection."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(data)
    async with asyncio.timeout(10):
        # A connection that is closed with unread bytes is reset.
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""  # a listener sends nothing to a caller
    writer.close()


async def still_serves(pair: Pair) -> None:
    """Check that b can still receive frames from a."""
    frames_before = len(pair.b.frames)
    pair.a.transport.send(pair.to_b, frame(frames_before))
    await pair.b.until(lambda: len(pair.b.frames) == frames_before + 1)


def test_frames_keep_their_order_although_the_link_opens_while_they_are_sent() -> None:
    """The first frames wait until the link is open, and the later ones are sent on the open link.

    All 500 frames arrive in the order in which they were sent.
    """

    async def body(pair: Pair) -> None:
        for number in range(500):
            pair.a.transport.send(pair.to_b, frame(number))
            if number % 50 == 0:
                await asyncio.sleep(0)  # lets the event loop go on with the dialing for a moment
        await pair.b.until(lambda: len(pair.b.frames) == 500)
        assert pair.b.frames == [frame(number) for number in range(500)]

    with_pair(body)


def test_link_dialed_by_both_at_once_carries_both_directions() -> None:
    """Two brokers fetch from each other, so they may dial each other at the same time."""

    async def body(pair: Pair) -> None:
        for number in range(100):
            pair.a.transport.send(pair.to_b, frame(number))
            pair.b.transport.send(pair.to_a, frame(number))
        await pair.b.until(lambda: len(pair.b.frames) == 100)
        await pair.a.until(lambda: len(pair.a.frames) == 100)
        assert pair.a.frames == pair.b.frames
        assert pair.a.lost == []
        assert pair.b.lost == []

    with_pair(body)


def test_listener_refuses_a_wrong_token_and_goes_on() -> None:
    """Another run on the machine, or a stranger, must not be able to send a frame."""

    async def body(pair: Pair) -> None:
        await raw_call(pair.to_b, hello(token="guessed") + packed(frame(1)))
        assert pair.b.refused == ["wrong token"]
        assert pair.b.frames == []
        await still_serves(pair)

    with_pair(body)


def test_listener_refuses_a_caller_that_expects_another_process() -> None:
    """A caller may use the old address of a process, at which another process listens now."""

    async def body(pair: Pair) -> None:
        await raw_call(pair.to_b, hello(target="b-of-yesterday"))
        assert pair.b.refused == ["meant for process b-of-yesterday"]
        await still_serves(pair)

    with_pair(body)


def test_listener_refuses_a_caller_with_another_version_of_the_links() -> None:
    """The two processes may run different versions of this program."""

    async def body(pair: Pair) -> None:
        await raw_call(pair.to_b, hello(version=LINK_VERSION + 1))
        assert pair.b.refused == [f"link version {LINK_VERSION + 1} instead of {LINK_VERSION}"]
        await still_serves(pair)

    with_pair(body)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        packed("a string"),
        struct.pack(">I", 3) + b"\xc1\xc1\xc1",  # MessagePack never uses the byte C1
        packed(frame(1)),
        # In MessagePack the byte FF is the number -1. So this is five numbers in place of a frame.
        hello() + struct.pack(">I", 5) + b"\xff" * 5,
        hello() + packed(frame(1)) + packed({"no": "frame"}),
    ],
    ids=["http", "string", "garbage", "frame-before-hello", "garbage-after-hello", "map"],
)
def test_listener_refuses_bytes_that_are_no_frame_and_goes_on(data: bytes) -> None:
    """A node must survive any bytes, before and after a valid Hello."""

    async def body(pair: Pair) -> None:
        await raw_call(pair.to_b, data)
        assert len(pair.b.refused) == 1
        await still_serves(pair)

    with_pair(body)


def test_listener_refuses_a_frame_over_the_limit_and_goes_on() -> None:
    """The limit of a Hello is 65,536 bytes, and the limit of each later frame is 1,000 bytes here.

    The test sends only the 4 bytes with the length, and none of the content. So b must refuse the
    message before it reads the content.
    """

    async def body(pair: Pair) -> None:
        await raw_call(pair.to_b, hello() + struct.pack(">I", MAX_FRAME_BYTES + 1))
        assert pair.b.refused == ["a frame of 1001 bytes, 1000 are allowed"]
        # The Hello was valid, so b knows which process called, and now reports it as ended.
        assert pair.b.lost == ["raw"]
        # The second caller begins with a Hello that is too long.
        await raw_call(pair.to_b, struct.pack(">I", tcp.MAX_HELLO_BYTES + 1))
        assert pair.b.refused[1:] == ["a frame of 65537 bytes, 65536 are allowed"]
        await still_serves(pair)

    with_pair(body)


def test_listener_closes_the_connection_of_a_silent_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that sends nothing must not occupy a socket of the node for ever.

    The timeout for the Hello is 10 ms here.
    """
    monkeypatch.setattr(tcp, "HELLO_TIMEOUT_S", 0.01)

    async def body(pair: Pair) -> None:
        await raw_call(pair.to_b, b"")
        assert pair.b.refused == ["no Hello"]
        await still_serves(pair)

    with_pair(body)


def test_sender_with_another_token_sees_its_peer_as_lost() -> None:
    """The listener refuses the sender, which must learn of the refusal without a timeout."""

    async def body(pair: Pair) -> None:
        pair.a.transport.send(pair.to_b, frame(1))
        await pair.a.until(lambda: bool(pair.a.lost))
        assert pair.a.lost == ["b"]
        assert pair.b.refused == ["wrong token"]

    with_pair(body, token_of_b="other")


def test_sender_to_a_port_without_a_listener_sees_its_peer_as_lost() -> None:
    """At the address of a dead process the connection is refused, so no timeout is needed."""

    async def body(pair: Pair) -> None:
        await pair.b.transport.close()
        pair.a.transport.send(pair.to_b, frame(1))
        assert pair.a.lost == []  # `send` itself must not report the loss
        await pair.a.until(lambda: bool(pair.a.lost))
        assert pair.a.lost == ["b"]

    with_pair(body)


def test_peer_that_ends_is_reported_once_and_after_its_last_frame() -> None:
    """All frames that a process has sent arrive before the report of its death.

    Here b sends 50 frames to a, and ends.
    """

    async def body(pair: Pair) -> None:
        pair.a.transport.send(pair.to_b, frame(0))
        await pair.b.until(lambda: len(pair.b.frames) == 1)
        pair.b.transport.send(pair.to_a, frame(0))
        await pair.a.until(lambda: len(pair.a.frames) == 1)

        for number in range(1, 50):
            pair.b.transport.send(pair.to_a, frame(number))
        await pair.b.transport.close()
        await pair.a.until(lambda: bool(pair.a.lost))
        assert pair.a.story == ["frame"] * 50 + ["lost"]  # the frames 0 to 49, then the end
        # If a sends to the dead process again, it dials in vain, and reports the loss once more.
        pair.a.transport.send(pair.to_b, frame(1))
        await pair.a.until(lambda: len(pair.a.lost) == 2)

    with_pair(body)


def test_link_dropped_by_one_side_is_dialed_again_when_either_sends() -> None:
    """Both sides report the other as lost once for each drop. The next frame dials a new link."""

    async def body(pair: Pair) -> None:
        for _ in range(5):
            pair.a.transport.send(pair.to_b, frame(0))
            pair.b.transport.send(pair.to_a, frame(0))
            # Wait until the last report is a frame. In the first round `story` is empty at first.
            # Then the slice is empty, too, while [-1] would raise an IndexError.
            await pair.b.until(lambda: pair.b.story[-1:] == ["frame"])
            await pair.a.until(lambda: pair.a.story[-1:] == ["frame"])
            pair.a.transport.drop("b")
            assert pair.a.story[-1] == "lost"
            await pair.b.until(lambda: pair.b.story[-1] == "lost")
        assert len(pair.a.lost) == 5
        assert len(pair.b.lost) == 5

    with_pair(body)


def test_frame_sent_while_a_peer_is_reported_lost_uses_the_next_pair_of_links() -> None:
    """A client that learns of a broker's end asks the next broker, perhaps in the same process.

    1. Process a ends its links and dials again, before b has noticed the end. In this test a does
       not really do so. The test itself sends b a second Hello with the name of a.
    2. At this Hello b drops its old links with a, and reports a as lost. Because b closes its old
       link to a, a reports b as lost, too.
    3. While b still reports the loss, one of its nodes sends frame 2 to a. For this frame b dials a
       new link.
    4. Later b sends frame 3. It must use the link of frame 2.

    If b forgot the link of frame 2, it would dial again for frame 3. Then a would get a second
    Hello from b, drop its links and report b as lost again. This could go on without end.
    """

    async def body(pair: Pair) -> None:
        pair.a.transport.send(pair.to_b, frame(0))
        await pair.b.until(lambda: len(pair.b.frames) == 1)
        pair.b.transport.send(pair.to_a, frame(1))
        await pair.a.until(lambda: len(pair.a.frames) == 1)

        record_loss = pair.b.on_lost

        def on_lost(process_id: str, nodes: tuple[NodeName, ...]) -> None:
            record_loss(process_id, nodes)
            pair.b.transport.send(pair.to_a, frame(2))

        pair.b.transport.events = replace(pair.b.transport.events, on_peer_lost=on_lost)

        # This is the second Hello, on a connection of the test.
        _, writer = await asyncio.open_connection(pair.to_b.host, pair.to_b.port)
        writer.write(hello(caller="a"))
        await pair.a.until(lambda: len(pair.a.frames) == 2)
        pair.b.transport.send(pair.to_a, frame(3))
        await pair.a.until(lambda: len(pair.a.frames) == 3)
        # Each side has counted the other as lost exactly once.
        assert pair.b.lost == ["a"]
        assert pair.a.lost == ["b"]
        writer.close()

    with_pair(body)


def test_send_of_a_frame_over_the_limit_raises_and_the_link_still_works() -> None:
    """Only a bug in our own node can build such a frame, so `send` raises an error in that node.

    Other nodes send through the same link, and their frames must still arrive.
    """

    async def body(pair: Pair) -> None:
        pair.a.transport.send(pair.to_b, frame(1))
        with pytest.raises(SimulationError, match="bytes, 1000 are allowed"):
            pair.a.transport.send(pair.to_b, frame(2, reason="x" * 2_000))
        pair.a.transport.send(pair.to_b, frame(3))
        await pair.b.until(lambda: len(pair.b.frames) == 2)
        assert pair.b.frames == [frame(1), frame(3)]

    with_pair(body)


def test_waiting_frames_are_handled_after_due_timers() -> None:
    """After a pause of a process the due timers fire first, and then messages are handled.

    Kafka's order is the same, so a resumed broker may expire a member whose heartbeat waits in a
    socket. The test blocks the event loop until both a frame and a timer wait.
    """

    async def body(pair: Pair) -> None:
        pair.a.transport.send(pair.to_b, frame(0))
        await pair.b.until(lambda: len(pair.b.frames) == 1)
        loop = asyncio.get_running_loop()

        due = loop.time() + 0.001
        loop.call_at(due, pair.b.story.append, "timer")
        pair.a.transport.send(pair.to_b, frame(1))
        await asyncio.sleep(0)  # a writes the frame into its socket
        # This loop has no await. So the event loop handles neither the frame nor the timer before
        # both wait.
        while loop.time() <= due:
            pass
        await pair.b.until(lambda: len(pair.b.frames) == 2)
        assert pair.b.story == ["frame", "timer", "frame"]

    with_pair(body)
