"""The virtual network: one directed link per pair of nodes, with latency, and refusals.

The network takes the place of cables and of the machines' kernels. The frames from one node to
another arrive in order, each after a random latency. The network knows no connections: it delivers
a frame to the host that is up under the name of the destination when the frame arrives. If no host
is up under this name, the network answers as a kernel would: it refuses a new connection, and
answers other frames with a reset.
"""

import random
from collections.abc import Mapping
from typing import Protocol

import msgspec

from cluster.host.frames import (
    CloseFrame,
    Frame,
    NoticeFrame,
    OpenedFrame,
    OpenFrame,
    RequestFrame,
    ResetFrame,
    ResponseFrame,
)
from cluster.host.randomness import stream
from cluster.spec import LinkModel
from cluster.virtual.loop import VirtualLoop
from protocol.api import Api
from protocol.ids import NodeName


class Receiver(Protocol):
    """The host of a node that is up; takes the frames for the node's name."""

    name: NodeName

    def receive(self, frame: Frame) -> None:
        """Take a frame that arrived."""


class Link:
    """One direction between two nodes, in which frames keep their order.

    The latency of a frame is `base_us` plus a random time of up to `jitter_us`. One frame in
    `tail_one_in` is slow, and takes up to `tail_us` longer. Two random numbers are drawn for each
    frame, even if it is not slow. So the numbers that the next frame gets do not depend on whether
    this frame was slow.
    """

    __slots__ = (
        "_base_us",
        "_jitter_us",
        "_last_arrival_us",
        "_random",
        "_tail_one_in",
        "_tail_us",
    )

    def __init__(self, model: LinkModel, rng: random.Random, *, cross_rack: bool) -> None:
        self._base_us = model.base_us + (model.cross_rack_us if cross_rack else 0)
        self._jitter_us = model.jitter_us
        # If `tail_one_in` is 0, no frame is slow. But the test in `draw_arrival_us` then takes
        # every frame for a slow frame, so the time that is added must be 0.
        self._tail_us = model.tail_us if model.tail_one_in > 0 else 0
        self._tail_one_in = model.tail_one_in
        self._random = rng.random
        self._last_arrival_us = 0

    def draw_arrival_us(self, now_us: int) -> int:
        """Draw the arrival time of a frame that leaves now; no earlier frame arrives later."""
        arrival_us = now_us + self._base_us + int(self._random() * self._jitter_us)
        # `tail` is a random number from 0 to `tail_one_in`. It is below 1 for one frame in
        # `tail_one_in`, and then it is the part of `_tail_us` that is added.
        tail = self._random() * self._tail_one_in
        if tail < 1.0:
            arrival_us += int(tail * self._tail_us)
        if arrival_us < self._last_arrival_us:
            return self._last_arrival_us
        self._last_arrival_us = arrival_us
        return arrival_us

    def answer_us(self, now_us: int) -> int:
        """Return the arrival time of a kernel's answer that leaves now, after all earlier frames.

        No random number is drawn here. The link keeps its random stream when its source restarts,
        and the answers that a kernel gives for a dead node must not change the latencies after the
        restart.
        """
        return max(now_us + self._base_us, self._last_arrival_us)


class VirtualNetwork:
    """All links of a run and the hosts that are up."""

    def __init__(
        self,
        loop: VirtualLoop,
        *,
        seed: int,
        model: LinkModel,
        racks: Mapping[NodeName, str | None],
        copy_messages: bool = False,
    ) -> None:
        self._loop = loop
        self._seed = seed
        self._model = model
        self._racks = racks
        self._links: dict[tuple[NodeName, NodeName], Link] = {}
        """(source, destination) -> link, which is created at its first frame."""
        self._up: dict[NodeName, Receiver] = {}
        """Hosts that take frames, by the names of their nodes."""
        self.requests_arrived: dict[Api, int] = {}
        """Requests that reached a live node, by API."""
        self._copy_messages = copy_messages
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Frame)

    def attach(self, host: Receiver) -> None:
        """Deliver to `host`, from now on, the frames for its name."""
        self._up[host.name] = host

    def detach(self, host: Receiver) -> None:
        """Stop deliveries to `host`; another host of the same name keeps its deliveries."""
        # The next incarnation may have taken the name already.
        if self._up.get(host.name) is host:
            del self._up[host.name]

    def transmit(self, frame: Frame) -> None:
        """Put a frame on its link. The frame arrives even if its sender dies meanwhile."""
        link = self._links.get((frame.source, frame.destination))
        if link is None:
            link = self._link(frame.source, frame.destination)
        if self._copy_messages:
            # Encode and decode the frame, as between real processes. So the receiver gets a copy,
            # and mistakes in the encoding show.
            frame = self._decoder.decode(self._encoder.encode(frame))
        loop = self._loop
        loop.post_at(link.draw_arrival_us(loop.current_us), self.arrive, frame)

    def arrive(self, frame: Frame) -> None:
        """Deliver a frame to the host that is up under its destination's name.

        If no such host is up, the machine's kernel answers: it refuses an OpenFrame, and resets the
        connection to which any other frame belongs. (A peer may still use a connection whose other
        end is dead, because a cut of the link may delay the frame that ends the connection.)
        """
        host = self._up.get(frame.destination)
        if host is not None:
            if isinstance(frame, RequestFrame):
                api_key = frame.envelope.api_key
                self.requests_arrived[api_key] = self.requests_arrived.get(api_key, 0) + 1
            host.receive(frame)
            return
        match frame:
            case OpenFrame():
                self.transmit(_close_frame(frame, by_client=False, reason="connection refused"))
            case RequestFrame():
                self._transmit_reset(
                    _close_frame(frame, by_client=False, reason="its process is gone")
                )
            case OpenedFrame() | ResponseFrame() | NoticeFrame():
                self._transmit_reset(
                    _close_frame(frame, by_client=True, reason="its process is gone")
                )
            case CloseFrame() | ResetFrame():
                pass  # the sender has ended the connection, and the receiver's process is gone

    def _transmit_reset(self, answer: CloseFrame) -> None:
        """Put a kernel's answer on its link; its latency is not random (see `Link.answer_us`)."""
        loop = self._loop
        link = self._link(answer.source, answer.destination)
        loop.post_at(link.answer_us(loop.current_us), self.arrive, answer)

    def _link(self, source: NodeName, destination: NodeName) -> Link:
        """Return the link from `source` to `destination`; create it if there is none."""
        key = (source, destination)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = self._new_link(source, destination)
        return link

    def _new_link(self, source: NodeName, destination: NodeName) -> Link:
        """Return a link with its own random stream."""
        racks = (self._racks.get(source), self._racks.get(destination))
        # A node without a rack, such as a client, has no surcharge for another rack.
        return Link(
            self._model,
            stream(self._seed, "link", source, destination),
            cross_rack=None not in racks and racks[0] != racks[1],
        )


def _close_frame(
    frame: OpenFrame | OpenedFrame | RequestFrame | ResponseFrame | NoticeFrame,
    *,
    by_client: bool,
    reason: str,
) -> CloseFrame:
    """Return the answer that closes the connection of `frame`, sent by the frame's destination.

    `by_client` is True if the frame's destination is the connection's client.
    """
    return CloseFrame(
        source=frame.destination,
        destination=frame.source,
        connection_id=frame.connection_id,
        by_client=by_client,
        reason=reason,
    )
