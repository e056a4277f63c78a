"""The facts about a run that a report needs, and that are not in the run's tables.

The command line fills `RunFacts` from the run's JSON files: its manifest with the settings, its
results with the verdict, and its journal, which lists the faults with their outcomes.

Times are microseconds on the run's clock. Nodes have the names that they have in the trace, such as
`broker-0`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from results_schema.journal import JournalEntry
from results_schema.manifest import Manifest
from results_schema.results import EXIT_UNKNOWN, CheckReport, Results, RunOutcome, Verdict

Status = Literal["completed", "interrupted", "failed", "running", "killed"]
"""The state of a run that goes on (`running`), or the way in which it ended:

- `completed`: the run went through to its end;
- `interrupted`: it was ended before, for example by Ctrl-C;
- `failed`: coordlab itself failed;
- `killed`: the run's process is gone, and has recorded no end.
"""
_NO_RESULTS = Results(
    outcome=RunOutcome.INTERNAL_ERROR, verdict=Verdict.UNKNOWN, exit_code=EXIT_UNKNOWN
)
"""Results of a run that wrote no results: all counts are 0. The outcome INTERNAL_ERROR is there
only because Results must have an outcome. Pages show `RunFacts.status`, and not this outcome.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFact:
    """One setting of the experiment."""

    section: str
    """The section of the experiment's file, such as `groups.a`."""
    name: str
    """The name within the section, such as `members`."""
    value: str
    default: str | None = None
    """None if the setting has no default."""

    @property
    def differs(self) -> bool:
        """True if the value differs from the default."""
        return self.default is not None and self.value != self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The facts about a run, without its trace."""

    manifest: Manifest
    results: Results | None
    """None if the run wrote no results, or none that can be read."""
    status: Status
    faults: tuple[JournalEntry, ...] = ()
    """The entries of the journal: the faults of the plan, and accidents, in which a machine was
    away although no fault of the plan was the cause."""
    losses: tuple[str, ...] = ()
    """Sentences on missing parts of the trace or of the JSON files."""
    promises: Mapping[str, str] = field(default_factory=dict)
    """Sentences on Kafka's promises, by the name of the check that judges the promise."""
    settings: tuple[SettingFact, ...] = ()
    experiment_file: str | None = None
    """The path of the experiment's file."""
    experiment_yaml: str | None = None
    """The text of a file with which the run can be repeated. The settings that were changed on the
    command line are included."""
    coordinator: str | None = None
    """The coordinator of Kafka that the run models, such as the Scala coordinator of Kafka 3.9."""

    @property
    def question(self) -> str:
        """The question of the experiment."""
        return self._text("question")

    @property
    def expect(self) -> str:
        """The result that the experiment's author expects."""
        return self._text("expect")

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Names and addresses of pages for further reading."""
        # `config` is the experiment's file, which a user wrote. So `links` may be missing, or may
        # be no mapping.
        links = self.manifest.config.get("links")
        if not isinstance(links, Mapping):
            return ()
        return tuple((str(name), str(url)) for name, url in links.items())

    @property
    def results_or_empty(self) -> Results:
        """The results; if there are none, results whose counts are 0."""
        return self.results or _NO_RESULTS

    @property
    def checks(self) -> tuple[CheckReport, ...]:
        """The report of each checker."""
        return self.results_or_empty.checks

    @property
    def verdict(self) -> Verdict | None:
        """The verdict; None if there are no results."""
        return None if self.results is None else self.results.verdict

    @property
    def ended_as(self) -> str | None:
        """The verdict of a completed run; otherwise its status."""
        return self.verdict if self.status == "completed" else self.status

    def _text(self, key: str) -> str:
        """Return a text of the experiment's file; "" if the file lacks it."""
        return str(self.manifest.config.get(key) or "").strip()
