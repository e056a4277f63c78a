"""The settings of a run by name, for sentences that name the one that decided."""

from collections.abc import Sequence

from pipeline.report.facts import SettingFact


class Settings:
    """Looks settings up by section and name."""

    def __init__(self, facts: Sequence[SettingFact]) -> None:
        """Index the settings of a run."""
        self._values = {(fact.section, fact.name): fact.value for fact in facts}

    def of_cluster(self, name: str) -> str | None:
        """Return a setting of the brokers and controllers; None: the run does not say."""
        return self._values.get(("cluster.config", name))

    def of_group(self, group: str, name: str) -> str | None:
        """Return a setting of a group's members; None: the run does not say."""
        return self._values.get((f"groups.{group}.config", name))
