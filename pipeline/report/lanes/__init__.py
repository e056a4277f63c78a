"""The lanes of the report: what happened when, one picture a subject, all on one time axis.

Public: `section.timeline(run)`, `section.message_diagrams(run)`: the sections that they form. Each
lane is a module with `<name>_lane(run) -> Chart | None`; None: there is nothing to show.

Reading order: `spans` (intervals as rows and steps), `names` (what labels leave out), `marks` (what
all lanes look like), `tips`, `areas` (counts), `broker_fills`, then any lane: `faults`,
`availability`, `coordinators`, `groups`, `rebalances`, `ownership` (its rows: `ownership_rows`),
`messages` (its rows, words and links: `message_rows`, `message_words`, `message_jumps`).

What is many is bounded before it is drawn: a lane of more rows than a person reads shows how many
there are of each kind over time, and the rows that are picked.
"""
