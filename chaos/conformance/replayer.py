"""Replay of one transcript against our cluster in virtual time.

A transcript is a recording of one scenario with a real Kafka cluster. It has requests with Kafka's
answers, and actions such as the death of a broker. The replay starts a new cluster of this project,
sends each request at its recorded time, and keeps our answers. Later `comparison` compares our
answers with Kafka's.

A request often contains an id that an earlier answer has given, such as a member id. The recording
has a symbol in place of this id, such as `<member:1>`. Our brokers give another id. The replay
remembers our id for the symbol (`bindings`), and puts it into the requests that follow.

Data flow: Transcript -> ClusterSpec -> VirtualRuntime -> PlayedSteps.
"""

from dataclasses import dataclass, field
from functools import partial

from chaos.conformance.actions import Actions, NotCarriedOut
from chaos.conformance.client_machine import Address, ClientMachine
from chaos.conformance.comparison import (
    US_PER_MS,
    AnswerComparison,
    Bindings,
    PlayedStep,
    wait_of,
)
from chaos.conformance.recorded_cluster import (
    cluster_of,
    first_coordinator,
    recorded_group_ids,
    transaction_coordinators,
)
from chaos.conformance.transcript import (
    ActionStep,
    ComparisonRules,
    Transcript,
)
from cluster.host.host import Host
from cluster.node_factory import Node, build_node
from cluster.spec import ClusterSpec, NodeSpec, ProducerSpec
from cluster.virtual.runtime import VirtualRuntime
from protocol.api import AnyResponse
from protocol.plain import NotAMessage, is_known, request_from_plain, response_to_plain
from protocol.wire.fields import PlainMessage, PlainValue

SETTLE_US = 1_000_000
"""Time to wait before the start of the scenario, after all coordinators serve."""
POLL_INTERVAL_US = 500
"""Interval at which the replay checks whether an answer has come."""
MEMBER_FIELDS = ("member_id", "producer_id")
"""Fields with which an answer gives a generated id to a client."""


@dataclass(slots=True, kw_only=True)
class PlayedTranscript:
    """A played transcript.

    - `steps`: the requests, with our answers.
    - `bindings`: our ids for the symbols of the transcript.
    - `not_carried_out`: the reasons for which actions have failed, by the numbers of their steps.
    """

    steps: list[PlayedStep]
    bindings: Bindings
    not_carried_out: dict[int, str] = field(default_factory=dict)


def play_transcript(
    transcript: Transcript, rules: ComparisonRules, *, seed: int = 1
) -> PlayedTranscript:
    """Play a transcript in a new cluster. The ids that brokers generate are drawn from `seed`.

    Raises: TranscriptError if the transcript has settings that Kafka would refuse; NodeTaskFailed
    or SimulationError if there is a bug in this project.
    """
    return _Replay(transcript, rules, seed).run()


class _Replay:
    """One transcript during its replay."""

    def __init__(self, transcript: Transcript, rules: ComparisonRules, seed: int) -> None:
        self._transcript = transcript
        self._rules = rules
        self._cluster = cluster_of(transcript)
        self._clients: ClientMachine | None = None
        self._runtime = VirtualRuntime(
            self._cluster,
            seed=seed,
            run_id="conform",
            trace_messages=False,
            build=self._build,
        )
        self._start_us = 0
        """Time on the run's clock at which the scenario begins."""
        self._played = PlayedTranscript(
            steps=[PlayedStep(step=step) for step in transcript.requests],
            # A symbol is bound when our id for it becomes known. If `first` is None, no answer
            # gives the symbol's id to a client, because the id occurs only inside of lists. Such
            # symbols are bound by the comparison of answers.
            bindings=Bindings(
                name for name, symbol in transcript.symbols.items() if symbol.first is None
            ),
        )
        self._by_number = {played.step.n: played for played in self._played.steps}
        # number of a step -> the symbol whose id the answer of this step gives
        self._symbol_by_step = {
            symbol.first: name
            for name, symbol in transcript.symbols.items()
            if symbol.first is not None
        }

    def run(self) -> PlayedTranscript:
        """Boot the cluster, play every step, and wait for the outstanding answers."""
        return self._runtime.run(self._main())

    def _build(self, spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
        """Build a node. The only producer of the cluster stands for the recorded clients."""
        if isinstance(spec, ProducerSpec):
            self._clients = ClientMachine(host)
            return self._clients
        return build_node(spec, cluster, host)

    async def _main(self) -> PlayedTranscript:
        """Start the cluster, play the transcript, and stop the cluster."""
        await self._runtime.start()
        try:
            if self._clients is None:
                raise RuntimeError("the client machine was not started")
            await self._play(self._clients)
        finally:
            await self._runtime.stop()
        return self._played

    async def _play(self, clients: ClientMachine) -> None:
        """Wait until the cluster is like the recorded cluster. Then play each step at its time."""
        transcript = self._transcript
        coordinator = first_coordinator(transcript)
        actions = Actions(
            self._runtime,
            clients,
            recorded_group_ids(transcript),
            self._cluster.broker_config.offsets_topic_num_partitions,
            first=coordinator,
        )
        await actions.until_serving(coordinator)
        await actions.until_coordinating(transaction_coordinators(transcript))
        await self._runtime.sleep(SETTLE_US)

        self._start_us = self._runtime.now_us()
        for step in transcript.steps:
            await self._until(self._at_us(step.at_ms))
            await self._until_answered_before(step.at_ms)
            if isinstance(step, ActionStep):
                await self._act(actions, step)
            else:
                self._send(clients, self._by_number[step.n])
        # Wait until the end of the recording, and then for answers whose tolerance ends even later.
        await self._until(self._at_us(transcript.end_ms))
        await self._until_over()

    # -- time --

    def _at_us(self, at_ms: float) -> int:
        return self._start_us + round(at_ms * US_PER_MS)

    async def _until(self, at_us: int) -> None:
        remaining_us = at_us - self._runtime.now_us()
        if remaining_us > 0:
            await self._runtime.sleep(remaining_us)

    async def _until_answered_before(self, at_ms: float) -> None:
        """Wait for our answer to each request that Kafka had answered before `at_ms`.

        The recorded clients had these answers when they sent their next requests. If our cluster is
        a little slower, a request must not be sent before an answer on which it depends. The wait
        for each answer ends at its deadline.
        """
        for played in self._played.steps:
            answered_ms = played.step.answered_ms
            if answered_ms is None or answered_ms > at_ms:
                continue
            while not played.is_over and self._runtime.now_us() < self._deadline_us(played):
                await self._runtime.sleep(POLL_INTERVAL_US)

    async def _until_over(self) -> None:
        """Wait for each answer that has not come yet, until its deadline."""
        for played in self._played.steps:
            while not played.is_over and self._runtime.now_us() < self._deadline_us(played):
                await self._runtime.sleep(POLL_INTERVAL_US)

    def _deadline_us(self, played: PlayedStep) -> int:
        """Return the time until which the replay waits for an answer; 0 if nothing was sent."""
        if played.sent_us is None:
            return 0
        step = played.step
        if step.answered_ms is None:
            # Kafka did not answer. The replay waits as long as the recorder did, to see that our
            # broker does not answer either. `wait_of` returns None if the outcome names no time.
            wait_ms = wait_of(step.outcome or "") or 0
        else:
            wait_ms = step.answered_ms - step.at_ms + self._rules.tolerance_ms
        # One more millisecond (in microseconds), so that an answer exactly at the limit counts.
        one_more_ms = US_PER_MS
        return played.sent_us + round(wait_ms * US_PER_MS) + one_more_ms

    # -- steps --

    async def _act(self, actions: Actions, step: ActionStep) -> None:
        """Carry out an action. If it fails, the reason is noted, and the replay continues."""
        if step.action == "kill_broker":
            # The recorded broker was dead only at the end of this action. All other actions took
            # effect some time before their recorded end.
            await self._until(self._at_us(step.done_ms))
        try:
            await actions.carry_out(step)
        except NotCarriedOut as failure:
            self._played.not_carried_out[step.n] = str(failure)
            return
        if step.action == "wait_new_coordinator":
            # Our failover may take more or less time than Kafka's, and later steps depend on its
            # end. For example, the sessions that the new coordinator has loaded end a session
            # timeout after it began to serve. So `_start_us` is moved in such a way that the
            # recorded end of this action is now.
            self._start_us = self._runtime.now_us() - round(step.done_ms * US_PER_MS)

    def _send(self, clients: ClientMachine, played: PlayedStep) -> None:
        """Send a request, with our ids in place of symbols. If this is impossible, note why."""
        step = played.step
        if not is_known(step.api, step.version):
            played.not_implemented = f"{step.api} v{step.version}"
            return
        plain = self._played.bindings.to_ours(step.request)
        try:
            request = request_from_plain(step.api, step.version, _as_message(plain))
        except NotAMessage as error:
            # `read_transcript` has checked the request. So it can be invalid for only one reason:
            # our broker gave no id where Kafka gave one, and the symbol of this id is still in the
            # request.
            played.not_implemented = f"{step.api} v{step.version}: {error}"
            return
        played.sent_us = self._runtime.now_us()
        address = Address(
            client=step.client,
            client_id=step.client_id,
            number=step.conn,
            broker_id=step.broker,
        )
        clients.send(address, request, step.version, partial(self._take_outcome, played))

    def _take_outcome(self, played: PlayedStep, outcome: AnyResponse | str) -> None:
        """Note the answer of a request and the id that it gives, or the text of the outcome."""
        played.ended_us = self._runtime.now_us()
        step = played.step
        if isinstance(outcome, str):
            played.outcome = outcome
            return
        response = played.response = response_to_plain(step.api, step.version, outcome)
        symbol = self._symbol_by_step.get(step.n)
        if symbol is not None:
            new_id = next((response[name] for name in MEMBER_FIELDS if name in response), None)
            if isinstance(new_id, str | int) and new_id not in ("", -1):  # an error has no id
                self._played.bindings.bind(symbol, new_id)
        if step.response is not None and self._played.bindings.has_unbound(step.response):
            # Kafka's answer has symbols that occur only inside of lists and are not bound yet. The
            # next requests may contain these symbols. A comparison binds them, so the answer is
            # compared now, and the result is ignored.
            AnswerComparison(
                self._rules, step.api, self._transcript.kafka, self._played.bindings
            ).difference(step.response, response)


def _as_message(plain: PlainValue) -> PlainMessage:
    if not isinstance(plain, dict):
        raise TypeError(f"a message is an object, not {plain!r}")
    return plain
