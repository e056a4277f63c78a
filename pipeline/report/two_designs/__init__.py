"""Groups on ZooKeeper beside groups with a coordinator, on the page that compares runs.

What each group felt, what each change of its members cost, and who computed which plan from which
view. Reads the tables of the runs. Reading order: `sides` (a group of a run, and the changes that
it met), `costs` (what one change cost), `measured` (the same of Kafka 1.1.1, and the law of its
reads), `felt_strips`, `growth_chart` and `plan_lanes` (pictures), `answers` (what the coordinator
changed, and what it did not), `section`.
"""
