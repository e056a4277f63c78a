"""What the report knows of a run beside its tables: its JSON files, and what explains them.

The command line fills these. All times are microseconds of the run's clock, all names of nodes the
trace's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from results_schema.journal import JournalEntry
from results_schema.manifest import Manifest
from results_schema.results import EXIT_UNKNOWN, CheckReport, Results, RunOutcome, Verdict

Status = Literal["completed", "interrupted", "failed", "running", "killed"]
"""How the run itself ended; `killed`: its process is gone without having said so."""
_NO_RESULTS = Results(
    outcome=RunOutcome.INTERNAL_ERROR, verdict=Verdict.UNKNOWN, exit_code=EXIT_UNKNOWN
)
"""Stands for results that a run never wrote: nothing was counted, nothing was reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFact:
    """One setting of the experiment, by its path in the file; `default` None: it has none."""

    section: str
    name: str
    value: str
    default: str | None = None

    @property
    def differs(self) -> bool:
        """Whether it is not what Kafka, or the lab, would have had."""
        return self.default is not None and self.value != self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run without its trace.

    `results` None: the run wrote none, or they cannot be read. `faults` says what became of the
    plan. `losses` says what of the trace or of the JSON files is missing, `promises` what each
    check promises. `experiment_yaml` is the experiment as a file that runs the same,
    `experiment_file` where its own stands; `coordinator` is Kafka's coordinator that the run is
    faithful to.
    """

    manifest: Manifest
    results: Results | None
    status: Status
    faults: tuple[JournalEntry, ...] = ()
    losses: tuple[str, ...] = ()
    promises: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[SettingFact, ...] = ()
    experiment_file: str | None = None
    experiment_yaml: str | None = None
    coordinator: str | None = None

    @property
    def question(self) -> str:
        """What the experiment asks."""
        return self._text("question")

    @property
    def expect(self) -> str:
        """What the experiment's author expects."""
        return self._text("expect")

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Names and addresses of pages to read on."""
        links = self.manifest.config.get("links")
        if not isinstance(links, Mapping):
            return ()
        return tuple((str(name), str(url)) for name, url in links.items())

    @property
    def results_or_empty(self) -> Results:
        """The results; of a run without any, results that counted nothing."""
        return self.results or _NO_RESULTS

    @property
    def checks(self) -> tuple[CheckReport, ...]:
        """What each checker concluded."""
        return self.results_or_empty.checks

    @property
    def verdict(self) -> Verdict | None:
        """The verdict; None: there are no results."""
        return None if self.results is None else self.results.verdict

    @property
    def ended_as(self) -> str | None:
        """The run in a word: its verdict, or how it ended without one."""
        return self.verdict if self.status == "completed" else self.status

    def _text(self, key: str) -> str:
        return str(self.manifest.config.get(key) or "").strip()
