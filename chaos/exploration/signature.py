"""When two findings are the same: by their checker and by the story of their evidence.

Seeds differ in names, times and numbers; what happened does not. So names become what they name
(BROKER, GROUP ...), numbers become N, and lists lose their repetitions and their order.
"""

import re

import msgspec

from protocol.ids import CLUSTER_METADATA, CONSUMER_OFFSETS
from protocol.trace import TraceRow
from results_schema.results import Finding

MAX_STEPS = 12
"""The story of a finding begins alike; how often something was repeated tells nothing."""

_MEMBER_ID = re.compile(r"[\w.-]*\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_NODE = re.compile(r"\b(broker|controller|consumer|producer)-(?:[\w.-]*-)?\d+\b")
_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
_PLURAL = (
    (re.compile(r"\b(N append)s\b"), r"\1"),
    (re.compile(r"\bare (missing from)\b"), r"is \1"),
    (re.compile(r"\bwere (acknowledged in)\b"), r"was \1"),
)
"""One and many are one story."""


class Signature(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """What kind of finding it is.

    Shape: `claim` is the summary with names and numbers replaced by what they are; `story` has the
    kinds of the evidence's rows with their error or cause, in time order, repetitions left out.
    """

    check: str
    claim: str
    story: tuple[str, ...] = ()

    def claims_as(self, other: "Signature") -> bool:
        """Whether the two say the same of the cluster, by whatever way it came to that."""
        return (self.check, self.claim) == (other.check, other.claim)


def signature_of(finding: Finding) -> Signature:
    """Return what kind of finding it is."""
    names = _names_in(finding)
    steps: dict[str, None] = {}
    for row in finding.evidence:
        said = row.error or row.cause
        step = str(row.kind) if said is None else f"{row.kind} ({_without_names(said, names)})"
        steps[step] = None
    return Signature(
        check=finding.check,
        claim=_as_a_set(_without_names(finding.summary, names)),
        story=tuple(steps)[:MAX_STEPS],
    )


def normalized(text: str) -> str:
    """Return a text without what a seed chose: nodes, ids and numbers."""
    return _without_names(text, {})


def _names_in(finding: Finding) -> dict[str, str]:
    """Return what each name that a seed chose stands for."""
    names: dict[str, str] = {}
    _add_names(names, group=finding.group, partition=finding.partition)
    for row in finding.evidence:
        _add_names(names, group=row.group, partition=row.partition)
        _add_members(names, row)
    return names


def _add_names(names: dict[str, str], *, group: str | None, partition: str | None) -> None:
    if group:
        names.setdefault(group, "GROUP")
    if partition:
        topic = partition.rpartition("-")[0]
        if topic not in {CONSUMER_OFFSETS, CLUSTER_METADATA}:
            names.setdefault(topic, "TOPIC")


def _add_members(names: dict[str, str], row: TraceRow) -> None:
    if row.member:
        names.setdefault(row.member, "MEMBER")


def _without_names(text: str, names: dict[str, str]) -> str:
    # Ids and nodes first: they hold the names of groups.
    text = _MEMBER_ID.sub("MEMBER", text)
    text = _NODE.sub(lambda node: node[1].upper(), text)
    if names:
        longest_first = sorted(names, key=lambda name: (-len(name), name))
        known = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, longest_first))})(?![\w.])")
        text = known.sub(lambda name: names[name[0]], text)
    text = _NUMBER.sub("N", text)
    for many, one in _PLURAL:
        text = many.sub(one, text)
    return text


def _as_a_set(claim: str) -> str:
    """Leave out repetitions and the order of a list behind a colon: how many it hit is chance."""
    head, colon, tail = claim.partition(": ")
    parts = sorted(dict.fromkeys(tail.split("; ")))
    return head + colon + "; ".join(parts)
