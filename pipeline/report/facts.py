"""The facts about a run that a report needs, and that are not in the run's tables.

The command line fills `RunFacts` from the run's JSON files: its manifest with the settings, its
results with the verdict, and its journal, which lists the faults with their outcomes. The checkers,
which gave the verdict, add the promises that they judge.

Times are microseconds on the run's clock. Nodes have the names that they have in the trace, the
record of the run's events.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from results_schema.journal import JournalEntry
from results_schema.manifest import Manifest
from results_schema.results import EXIT_UNKNOWN, CheckReport, Results, RunOutcome, Verdict

Status = Literal["completed", "interrupted", "failed", "running", "killed"]
"""How the run ended. The status is `killed` if the run's process is gone without a record of its
end, and `failed` if coordlab itself failed.
"""
_NO_RESULTS = Results(
    outcome=RunOutcome.INTERNAL_ERROR, verdict=Verdict.UNKNOWN, exit_code=EXIT_UNKNOWN
)
"""Used in the place of the results if a run wrote none. All counts are 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFact:
    """One setting of the experiment.

    `section` and `name` say where it is in the experiment's file: the section `groups.a` and the
    name `members`, for example. `default` is None if the setting has no default.
    """

    section: str
    name: str
    value: str
    default: str | None = None

    @property
    def differs(self) -> bool:
        """True if the value differs from the default."""
        return self.default is not None and self.value != self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The facts about a run, without its trace.

    - `results`: None if the run wrote none, or if they cannot be read.
    - `status`: how the run ended.
    - `faults`: the entries of the journal: the faults of the plan, and accidents.
    - `losses`: sentences on missing parts of the trace or of the JSON files.
    - `promises`: the promise that each check judges, by the check's name.
    - `settings`: all settings of the experiment.
    - `experiment_file`: path of the experiment's file; `experiment_yaml`: text of a file that
      repeats the run, with all settings that the command line changed.
    - `coordinator`: the version of Kafka's coordinator that the run models, such as the Scala one
      of 3.9.
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
        """The question of the experiment."""
        return self._text("question")

    @property
    def expect(self) -> str:
        """The result that the experiment's author expects."""
        return self._text("expect")

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Names and addresses of pages for further reading."""
        # `config` is plain JSON, so `links` can be missing, or can be something else than a
        # mapping.
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
