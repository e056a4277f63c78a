"""What members commit: a run in which nobody does must not read as if commits had been refused."""

from collections.abc import Iterator

from markupsafe import Markup

from pipeline.report.facts import RunFacts
from pipeline.report.sentences.prose import fill_sentence

_NOT_SET, _OFF = "not set", "false"


def nobody_commits(facts: RunFacts) -> bool:
    """Whether no member of any group was told to commit, by hand or by itself."""
    if facts.results_or_empty.commits_acknowledged:
        return False
    by_hand = list(_of_groups(facts, "commit_interval_ms"))
    by_itself = list(_of_groups(facts, "enable.auto.commit"))
    settings = (*by_hand, *by_itself)
    return bool(by_hand) and all(value in {_NOT_SET, _OFF} for value in settings)


def _of_groups(facts: RunFacts, name: str) -> Iterator[str]:
    for each in facts.settings:
        if each.section.startswith("groups.") and each.name == name:
            yield each.value


def no_commits_sentence(facts: RunFacts) -> Markup | None:
    """Say that no member commits, and what that leaves out; None: some do."""
    if not nobody_commits(facts):
        return None
    return fill_sentence(
        "<b>No member commits offsets</b> in this run ({}): no commit can fail and send a member "
        "to look for its coordinator, and whoever is given a partition begins it anew ({}).",
        "enable.auto.commit = false, commit_interval_ms not set",
        "auto.offset.reset = " + (next(_of_groups(facts, "auto.offset.reset"), "earliest")),
    )
