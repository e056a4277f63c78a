"""Signatures: findings of different seeds that show the same problem have equal signatures.

A finding is a violation that a checker has reported. The search finds the same problem in many
seeds, and must report the problem once. But the findings of two seeds differ in names and numbers.
So a signature has placeholders for names and numbers. For example, the findings

    orders-readers lost the commit of offset 17 on broker-2
    billing lost the commit of offset 204 on broker-0

have the same claim, "GROUP lost the commit of offset N on BROKER".

A signature has two more parts: the name of the checker, and the story. The story is made of the
kinds of the trace rows that prove the finding.
"""

import re

import msgspec

from protocol.ids import CLUSTER_METADATA, CONSUMER_OFFSETS
from protocol.trace import TraceRow
from results_schema.results import Finding

MAX_STEPS = 12
"""Maximum number of steps of a story; later steps are left out.

Findings of the same kind begin with the same rows. It is chance how many further rows follow.
"""

# A member id is a name followed by a UUID.
_MEMBER_ID = re.compile(r"[\w.-]*\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
# The name of a node, such as `broker-0` or `consumer-orders-1`.
_NODE = re.compile(r"\b(broker|controller|consumer|producer)-(?:[\w.-]*-)?\d+\b")
# A number, perhaps with separators, such as `7`, `0.5` or `1,000`.
_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
_PLURAL = (
    (re.compile(r"\b(N append)s\b"), r"\1"),
    (re.compile(r"\bare (missing from)\b"), r"is \1"),
    (re.compile(r"\bwere (acknowledged in)\b"), r"was \1"),
)
"""Plural forms and their singular, so that "N appends are missing" equals "N append is missing".

The patterns expect `N`, so numbers must be replaced before.
"""


class Signature(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The kind of a finding.

    - `check`: the name of the checker.
    - `claim`: the finding's sentence, with placeholders for names and numbers.
    - `story`: the kinds of the rows that prove the finding, in time order and without repetitions.
      A row's error or cause follows in parentheses. For example, ("fault_injected (crash-N)",
      "commit_stored").
    """

    check: str
    claim: str
    story: tuple[str, ...] = ()

    def claims_as(self, other: "Signature") -> bool:
        """Return True if checker and claim are the same in both; their stories may differ."""
        return (self.check, self.claim) == (other.check, other.claim)


def signature_of(finding: Finding) -> Signature:
    """Return a finding's signature."""
    names = _names_in(finding)
    steps: dict[str, None] = {}  # an ordered set
    for row in finding.evidence:
        label = row.error or row.cause
        step = str(row.kind) if label is None else f"{row.kind} ({_without_names(label, names)})"
        steps[step] = None
    return Signature(
        check=finding.check,
        claim=_without_list_order(_without_names(finding.summary, names)),
        story=tuple(steps)[:MAX_STEPS],
    )


def normalized(text: str) -> str:
    """Return a text with placeholders for names of nodes, ids of members, and numbers."""
    return _without_names(text, {})


def _names_in(finding: Finding) -> dict[str, str]:
    """Return the names in a finding that differ between seeds, each with its placeholder."""
    names: dict[str, str] = {}
    _add_names(names, group=finding.group, partition=finding.partition)
    for row in finding.evidence:
        _add_names(names, group=row.group, partition=row.partition)
        _add_members(names, row)
    return names


def _add_names(names: dict[str, str], *, group: str | None, partition: str | None) -> None:
    """Add the placeholders of a group and of a partition's topic.

    Kafka's own topics get no placeholder, because they have the same names in all seeds.
    """
    if group:
        names.setdefault(group, "GROUP")
    if partition:
        topic = partition.rpartition("-")[0]  # a partition's name is `<topic>-<number>`
        if topic not in {CONSUMER_OFFSETS, CLUSTER_METADATA}:
            names.setdefault(topic, "TOPIC")


def _add_members(names: dict[str, str], row: TraceRow) -> None:
    """Add the placeholder of the member id in a row, if the row has one.

    `_without_names` then also replaces a member id that _MEMBER_ID does not match.
    """
    if row.member:
        names.setdefault(row.member, "MEMBER")


def _without_names(text: str, names: dict[str, str]) -> str:
    """Return a text in the singular, with placeholders for ids, nodes, `names` and numbers."""
    # Ids and nodes are replaced first, because they contain names of groups.
    text = _MEMBER_ID.sub("MEMBER", text)
    text = _NODE.sub(lambda node: node[1].upper(), text)
    if names:
        # The longest names come first. Otherwise only the part `orders` of the name
        # `orders-readers` would be replaced. A name with a letter, a digit, `_` or `.` directly
        # before or after it is only a part of a word, and is not replaced. A `-` does not count:
        # in `orders-3`, a partition, the topic `orders` is replaced.
        longest_first = sorted(names, key=lambda name: (-len(name), name))
        known = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, longest_first))})(?![\w.])")
        text = known.sub(lambda name: names[name[0]], text)
    text = _NUMBER.sub("N", text)
    for many, one in _PLURAL:
        text = many.sub(one, text)
    return text


def _without_list_order(claim: str) -> str:
    """Return a claim with the list after its colon sorted, and without repetitions.

    For example, "N are lost: TOPIC b; TOPIC a; TOPIC b" becomes "N are lost: TOPIC a; TOPIC b". It
    is chance how often a run finds an entry, and in which order it finds them.
    """
    head, colon, tail = claim.partition(": ")
    parts = sorted(dict.fromkeys(tail.split("; ")))
    return head + colon + "; ".join(parts)
