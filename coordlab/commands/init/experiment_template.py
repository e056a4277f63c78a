"""The experiment file that `init` writes: small, whole, and explained line by line.

What a setting means and what it is by default is taken from the settings themselves, so that the
comments cannot lag behind. Every fault has a plan here with which the file runs as it is.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import FieldInfo, fields

from chaos.checkers.registry import CHECKERS
from chaos.experiment.field_docs import field_docs
from chaos.experiment.structs import GroupDefinition, RunDefinition
from cluster.spec import CostModel, LinkModel
from protocol.config import BrokerConfig, ConsumerConfig, Guards, ProducerConfig
from scripts.docs.markdown import shown

WIDTH = 100
_COMMENT_COLUMN = 44
GROUP = "readers"
MEMBERS = 6
TOPIC = "orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultExample:
    """A plan that shows a fault: what one asks with it, what one should see, its lines of YAML."""

    question: str
    expect: str
    lines: tuple[str, ...]


_COORDINATOR = f"coordinator-of({GROUP})"
_AIMED = (
    f"    target: {_COORDINATOR}    # a role: who plays it is found out when the fault fires",
)
_ENDS = (
    f"    from: {_COORDINATOR}      # what the fault is about",
    "    to: [controller, brokers]           # what that is kept from: all other servers",
)


def _lasting(name: str, duration: str, then: str, *more: str) -> tuple[str, ...]:
    return (
        "  - at: 5s                                # after the steady state",
        f"    fault: {name}",
        *more,
        f"    duration: {duration:<30}# {then}",
    )


def _momentary(name: str, *more: str, at: str = "5s") -> tuple[str, ...]:
    return (
        f"  - at: {at:<34}# after the steady state",
        f"    fault: {name:<31}# done in a moment: no duration",
        *more,
    )


_AWAY = (
    *(
        line
        for index in range(MEMBERS)
        for line in _lasting(
            "crash", "50s", "then it comes back", f"    target: member({GROUP}, {index})"
        )
    ),
    *_momentary("remove_members", *_AIMED, at="6s"),
)
"""Every member dies, and is taken out: of a group that has some, what follows is refused."""

FAULT_EXAMPLES: dict[str, FaultExample] = {
    "crash": FaultExample(
        question="How long is the group without commits when its coordinator is killed?",
        expect="About 8 s, nearly all of it until the controller notices. No rebalance.",
        lines=_lasting("crash", "25s", "then it starts again, on its own disk", *_AIMED),
    ),
    "power_loss": FaultExample(
        question="What does the group lose when the machine of its coordinator loses power?",
        expect="Nothing: the other replicas have every acknowledged commit. Connections stay open "
        "and silent, so members notice later than after a crash.",
        lines=_lasting(
            "power_loss",
            "25s",
            "then it starts again, without what was not flushed",
            *_AIMED,
        ),
    ),
    "controlled_shutdown": FaultExample(
        question="What does the group notice when its coordinator is stopped in order?",
        expect="Commits pause for a few hundred ms: leadership moves before the process ends.",
        lines=_lasting("controlled_shutdown", "15s", "then it starts again", *_AIMED),
    ),
    "pause": FaultExample(
        question="How long is the group without commits when its coordinator stands still?",
        expect="Longer than after a crash: its connections stay open and silent.",
        lines=_lasting("pause", "20s", "then it goes on, and may not know what it missed", *_AIMED),
    ),
    "leadership_move": FaultExample(
        question="What does the group notice when an administrator moves its coordinator?",
        expect="Commits pause for a few hundred ms. No rebalance.",
        lines=_momentary("leadership_move", *_AIMED),
    ),
    "preferred_leader_election": FaultExample(
        question="What does the group notice when leadership goes back to the preferred leaders?",
        expect="Commits pause for a few hundred ms, twice: when the broker stops, and when "
        "leadership goes back to it. No rebalance.",
        lines=(
            *_lasting(
                "controlled_shutdown", "5s", "then it starts again, and leads nothing", *_AIMED
            ),
            *_momentary("preferred_leader_election", "    target: all-topic-partitions", at="20s"),
        ),
    ),
    "remove_members": FaultExample(
        question="How long does a group rebalance when an administrator takes its members out?",
        expect="Each joins again when its next heartbeat tells it, within "
        "heartbeat.interval.ms; what was not committed is processed twice.",
        lines=_momentary("remove_members", *_AIMED),
    ),
    "delete_group": FaultExample(
        question="What is left of a group that is deleted while its members are away?",
        expect="Nothing: they come back to a new group, in generation 1, and start where "
        "auto.offset.reset says.",
        lines=(*_AWAY, *_momentary("delete_group", *_AIMED, at="8s")),
    ),
    "delete_offsets": FaultExample(
        question="Where do members go on whose offsets were deleted while they were away?",
        expect="Where auto.offset.reset says.",
        lines=(*_AWAY, *_momentary("delete_offsets", *_AIMED, at="8s")),
    ),
    "reset_offsets": FaultExample(
        question="What do members read again whose offsets were reset while they were away?",
        expect="Everything from the first record on.",
        lines=(
            *_AWAY,
            *_momentary(
                "reset_offsets",
                *_AIMED,
                "    args:",
                "      to: earliest                        # or latest; of every topic it reads",
                at="8s",
            ),
        ),
    ),
    "cut": FaultExample(
        question="What becomes of the group when its coordinator is cut off from the cluster, but "
        "not from the members?",
        expect="Two coordinators for a while; commits at the old one time out after 5 s, and none "
        "is acknowledged there after one at the new.",
        lines=_lasting("cut", "25s", "then what was held arrives, in order", *_ENDS),
    ),
    "clog": FaultExample(
        question="What becomes of the group when everything that its coordinator says to the "
        "cluster is held back?",
        expect="As with a cut; at healing all of it arrives at once.",
        lines=_lasting("clog", "15s", "then all of it arrives, in order", *_ENDS),
    ),
    "slow": FaultExample(
        question="What do 50 ms between the brokers cost a commit?",
        expect="Each commit takes two of these ways more. No failover, no rebalance.",
        lines=_lasting(
            "slow",
            "20s",
            "then frames travel as before",
            *_ENDS,
            "    args:",
            "      delay: 50ms                         # added to every frame, each way",
            "      jitter: 10ms                        # up to so much more",
        ),
    ),
    "reset": FaultExample(
        question="What do members do when their connections to the coordinator are reset?",
        expect="They find the same coordinator again, and keep their generation.",
        lines=_momentary(
            "reset",
            f"    from: {_COORDINATOR}      # both ends see their connections end",
            f"    to: members({GROUP})",
        ),
    ),
}
"""For every fault a plan that hits, and a run that proves something."""


def experiment_text(name: str, fault: str, *, run_as: str, schema: str | None) -> str:
    """Return the text of an experiment file.

    Shape: `fault` is a key of FAULT_EXAMPLES; `run_as` is what `run` takes for this file; `schema`
    is where editors find the JSON Schema, None leaves that line out.
    """
    example = FAULT_EXAMPLES[fault]
    lines = [
        *_head(run_as, schema),
        _line(0, "version", "1", "of this format"),
        _line(0, "name", name, "its runs lie in a folder of this name"),
        *_folded("question", example.question),
        *_comment("What you expect, in your own words: compare it with the report."),
        *_folded("expect", example.expect),
        "",
        *_cluster(),
        *_clients(),
        *_plan(example),
        *_rest(),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(run_as: str, schema: str | None) -> Iterator[str]:
    if schema is not None:
        yield f"# yaml-language-server: $schema={schema}"
    yield "# An experiment: a cluster, what its clients do, what is broken and when."
    yield "#"
    yield f"# Check it:  python -m coordlab validate {run_as}"
    yield f"# Run it:    python -m coordlab run {run_as} --runtime virtual --seed 1"
    yield "#            in virtual time: a few seconds, and the same seed gives the same run"
    yield f"#            python -m coordlab run {run_as}"
    yield "#            real processes on Ray, with Kafka's real timeouts"
    yield f"# Vary it:   --var groups.{GROUP}.members=12 --var cluster.brokers=5"
    yield "#"
    yield from _comment(
        "A line such as `#key: value` shows a default: take the # away to change it. A duration is "
        "a whole number and its unit: 250ms, 5s, 2m. Every key is explained in "
        "docs/generated/experiment-file.md, every fault and target in docs/generated/faults.md."
    )
    yield ""


def _cluster() -> Iterator[str]:
    yield from _comment("The servers. Kafka's settings keep Kafka's names, defaults and bounds.")
    yield "cluster:"
    yield _line(2, "brokers", "3", "broker-0, broker-1, broker-2")
    yield "  config:"
    broker = _settings(BrokerConfig)
    yield from broker.set("offsets.topic.num.partitions", "6")
    yield from broker.set("min.insync.replicas", "2")
    yield from broker.set("auto.leader.rebalance.enable", "false")
    yield from broker.unset(
        "offsets.topic.replication.factor",
        "broker.session.timeout.ms",
        "broker.heartbeat.interval.ms",
        "offsets.commit.timeout.ms",
        "group.initial.rebalance.delay.ms",
        "unclean.leader.election.enable",
        "replica.lag.time.max.ms",
    )
    yield from _comment("Kafka's safety checks as switches: off shows what each prevents.", 2)
    yield "  #guards:"
    guards = _settings(Guards)
    yield from guards.unset(*(info.encode_name for info in fields(Guards)))
    yield from _comment("The latency of the network in virtual time, one way.", 2)
    yield "  #links:"
    yield from _settings(LinkModel).unset("base_us", "jitter_us")
    yield from _comment("What a new coordinator's load takes in virtual time.", 2)
    yield "  #costs:"
    yield from _settings(CostModel).unset("load_ns_per_record", "load_ns_per_byte")
    yield ""
    yield from _comment("The topics, by name; __consumer_offsets is there anyway.")
    yield "topics:"
    yield f"  {TOPIC}:"
    yield _line(4, "partitions", "6", "orders-0 to orders-5")
    yield _line(4, "replication.factor", "3", "on how many brokers each partition lies")
    yield ""


def _clients() -> Iterator[str]:
    yield from _comment(
        "The consumer groups, by name. A group's coordinator is the broker that leads the "
        "partition of __consumer_offsets that its name hashes to."
    )
    yield "groups:"
    yield f"  {GROUP}:"
    yield _line(4, "members", str(MEMBERS), "consumers, alike; indices count from 0")
    yield _line(4, "topics", f"[{TOPIC}]", "what they subscribe to")
    yield _line(4, "commit_interval_ms", "200", "how often the application commits (commitAsync)")
    yield from _settings(GroupDefinition, indent=4).unset(
        "poll_timeout_ms", "process_us", "isolate"
    )
    yield "    config:"
    consumer = _settings(ConsumerConfig, indent=6)
    yield from consumer.set("enable.auto.commit", "false")
    yield from consumer.set("auto.offset.reset", "earliest")
    yield from consumer.unset(
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "request.timeout.ms",
    )
    yield _line(6, "#group.instance.id", f"{GROUP}-{{index}}", "would make them static members")
    yield ""
    yield from _comment("Producers write numbered records, so that gaps and repetitions are seen.")
    yield "producers:"
    yield _line(2, "- topic", TOPIC)
    yield _line(4, "records_per_second", "60", "to the whole topic, round robin")
    yield "    config:"
    yield from _settings(ProducerConfig, indent=6).set("acks", "all")
    yield ""


def _plan(example: FaultExample) -> Iterator[str]:
    yield from _comment(
        "The plan. More faults: more entries; `every: 20s` with `repeat: 3` injects one three "
        "times. A target may also be broker(0), leader-of(orders-0), member(readers, 0) or "
        "controller; one that is nobody when the fault fires makes the verdict unknown."
    )
    yield "faults:"
    yield from (_aligned(line) for line in example.lines)
    yield ""


def _rest() -> Iterator[str]:
    yield from _comment("How long the stages of the run may take.")
    yield "run:"
    run = _settings(RunDefinition, indent=2)
    yield from run.set("after_faults", "10s")
    yield from run.unset("steady_state_timeout", "liveness_timeout")
    yield ""
    yield from _comment(
        f"The promises that are checked; without this line all: {', '.join(CHECKERS)}."
    )
    yield "#checks: [fencing, durable_commits]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """The lines of one section: those that the file sets, and defaults that it shows."""

    known: dict[str, FieldInfo]
    docs: dict[str, str]
    indent: int

    def set(self, name: str, value: str) -> Iterator[str]:
        """Yield the line of a setting, with its default."""
        info = self.known[name]
        default = shown(msgspec.to_builtins(info.default))
        meaning = self.docs[info.name]
        if value != default:
            meaning = f"{meaning} Default: {default}."
        yield from _explained(self.indent, name, value, meaning)

    def unset(self, *names: str) -> Iterator[str]:
        """Yield commented lines that show defaults."""
        for name in names:
            info = self.known[name]
            default = shown(msgspec.to_builtins(info.default))
            yield from _explained(self.indent, f"#{name}", default, self.docs[info.name])


def _settings(struct: type[msgspec.Struct], *, indent: int = 4) -> _Settings:
    return _Settings(
        known={info.encode_name: info for info in fields(struct)},
        docs=field_docs(struct),
        indent=indent,
    )


def _explained(indent: int, key: str, value: str, meaning: str) -> Iterator[str]:
    """Yield a line with its meaning above it."""
    yield from _comment(meaning, indent)
    yield _line(indent, key, value)


def _line(indent: int, key: str, value: str, comment: str = "") -> str:
    text = f"{' ' * indent}{key}: {value}"
    return f"{text:<{_COMMENT_COLUMN - 1}} # {comment}" if comment else text


def _aligned(line: str) -> str:
    """Return a line with its comment in the column of all comments, where it has one."""
    text, mark, comment = line.partition(" # ")
    return f"{text.rstrip():<{_COMMENT_COLUMN - 1}} # {comment.strip()}" if mark else line


def _comment(text: str, indent: int = 0) -> Iterable[str]:
    prefix = f"{' ' * indent}# "
    return textwrap.wrap(text, WIDTH, initial_indent=prefix, subsequent_indent=prefix)


def _folded(key: str, text: str) -> Sequence[str]:
    lines = textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")
    return (f"{key}: >-", *lines)
