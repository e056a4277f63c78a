"""When two findings are the same: by their checker and by the story of their evidence.

Seeds differ in names, times and numbers; what happened does not.
"""

import re

import msgspec

from chaos.checkers.base import Finding

_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
MAX_STEPS = 12
"""The story of a finding begins alike; how often something was repeated tells nothing."""


class Signature(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """What kind of finding it is.

    Shape: `claim` is the summary with every number as `N`; `story` has the kinds of the evidence's
    rows with their error or cause, in time order, repetitions left out.
    """

    check: str
    claim: str
    story: tuple[str, ...] = ()

    def claims_as(self, other: "Signature") -> bool:
        """Whether the two say the same of the cluster, by whatever way it came to that."""
        return (self.check, self.claim) == (other.check, other.claim)


def signature_of(finding: Finding) -> Signature:
    """Return what kind of finding it is."""
    steps: list[str] = []
    for row in finding.evidence:
        said = row.error or row.cause
        step = row.kind if said is None else f"{row.kind} ({_NUMBER.sub('N', said)})"
        if step not in steps:
            steps.append(step)
    return Signature(
        check=finding.check,
        claim=_NUMBER.sub("N", finding.summary),
        story=tuple(steps[:MAX_STEPS]),
    )
