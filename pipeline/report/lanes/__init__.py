"""The lanes of the report: what happened when, one picture a subject, all on one time axis.

Each lane is a module with `<name>_lane(run) -> Chart | None`; None: there is nothing to show. The
two sections that the lanes form are in `pipeline.report.build`.

Reading order: `spans` (intervals as rows and steps), `labels` (what they and tooltips say), `marks`
(what all lanes look like), `broker_fills`, `interval_lane` (a lane as a table of columns), then any
lane: `faults`, `lives` (of members that an operation replaces), `availability`, `coordinators`,
`groups`, `rebalances`, `ownership` (its rows: `ownership_rows`); `messages` (its rows and words:
`message_rows`, `message_words`), which has lines between nodes instead of intervals.

What is many is bounded before it is drawn: a lane of more rows than a person reads shows how many
there are of each kind over time, and the rows that are picked.
"""
