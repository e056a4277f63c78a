"""The lanes of the report. A lane is a chart on the time axis that all lanes of a page share.

Each lane is about one subject, such as the faults, and has a module of its own. The module's
function `<name>_lane(run)` returns a Chart, or None if there is nothing to show. The module
`pipeline.report.build` puts the lanes into two sections.

Reading order: `spans` (intervals as rows and steps), `labels` (texts of labels and tooltips),
`marks` (bars, labels and fault bands of all lanes), `broker_fills` (colours), `interval_lane` (a
lane as a table of columns); then the lanes: `faults`, `lives` (of members that an operation
replaces), `availability`, `coordinators`, `groups`, `rebalances`, `ownership` (with
`ownership_rows`); `messages` (with `message_rows` and `message_words`), which has lines between
nodes instead of intervals.

If a lane has more rows than fit on a screen, it shows how many intervals of each kind there are
over time. Then a second chart beneath the lane shows the rows that the reader picks.
"""
