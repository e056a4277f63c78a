"""The virtual network: one directed link per pair of nodes, with latency, and refusals.

The network does the work of kernels and cables. Frames of a link arrive in order, each after a
drawn latency. An OpenFrame to a node that is not up is refused, so the client learns of it one
round trip later. Other frames to a node that is not up are answered with a reset, if the sender
still considers their connection open. The network keeps no connections. It delivers a frame to the
host that is up under the destination's name when the frame arrives.

- Host: the receiving side of one incarnation of a node. It is up from `attach` to `detach`.
- Client and server are the two ends of a connection: the client has opened it.
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
    """A live incarnation's host, which takes frames for its name."""

    name: NodeName

    def receive(self, frame: Frame) -> None:
        """Take a frame that arrived."""


class Link:
    """One direction between two nodes: first in first out, with a random stream of its own.

    The latency of a frame is a base plus a jitter. One frame in `tail_one_in` is slow: it gets up
    to `_tail_us` more. Each frame takes two draws, even if its latency needs only one. So the
    latency of one frame never shifts the draws of the next.
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
        # `tail_one_in` is 0 if no frame is slow. Then `tail` in `draw_arrival_us` is always 0, as
        # for a slow frame, so nothing may be added for it.
        self._tail_us = model.tail_us if model.tail_one_in > 0 else 0
        self._tail_one_in = model.tail_one_in
        self._random = rng.random
        self._last_arrival_us = 0

    def draw_arrival_us(self, now_us: int) -> int:
        """Draw the arrival time of a frame that leaves now; no earlier frame arrives later."""
        arrival_us = now_us + self._base_us + int(self._random() * self._jitter_us)
        # `tail` is below 1 for one frame in `tail_one_in`. For such a slow frame `tail` is uniform
        # between 0 and 1, and is the part of `_tail_us` that is added.
        tail = self._random() * self._tail_one_in
        if tail < 1.0:
            arrival_us += int(tail * self._tail_us)
        if arrival_us < self._last_arrival_us:
            return self._last_arrival_us
        self._last_arrival_us = arrival_us
        return arrival_us

    def answer_us(self, now_us: int) -> int:
        """Return the arrival time of a kernel's answer that leaves now, after all earlier frames.

        It draws nothing, because the link has one random stream for all incarnations of its source:
        answers on behalf of a dead incarnation must not shift the draws of the next one.
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
        """Links by source and destination, made at their first frame."""
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
            # Real processes share no objects either. The copy also shows mistakes of the encoding.
            frame = self._decoder.decode(self._encoder.encode(frame))
        loop = self._loop
        loop.post_at(link.draw_arrival_us(loop.current_us), self.arrive, frame)

    def arrive(self, frame: Frame) -> None:
        """Deliver a frame to the host that is up under its destination's name.

        If no host is up, the machine exists but the process does not. The machine's kernel refuses
        an OpenFrame, and answers a frame of a connection with a reset. A peer may send such frames
        because a cut (a fault that holds frames) delays the news that the process ended.
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
        """Put a kernel's answer on its link, without a draw of its latency."""
        loop = self._loop
        link = self._link(answer.source, answer.destination)
        loop.post_at(link.answer_us(loop.current_us), self.arrive, answer)

    def _link(self, source: NodeName, destination: NodeName) -> Link:
        """Return a link, made if there is none."""
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
    """Return the answer to `frame` that closes its connection, in the name of its destination.

    `by_client` is True if that destination is the connection's client.
    """
    return CloseFrame(
        source=frame.destination,
        destination=frame.source,
        connection_id=frame.connection_id,
        by_client=by_client,
        reason=reason,
    )
