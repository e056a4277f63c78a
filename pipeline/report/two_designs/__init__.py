"""Sections of the report that compare groups on ZooKeeper with groups that have a coordinator.

In the older design of consumer groups, each member reads from ZooKeeper who belongs to the group,
and computes the assignment itself. In the newer design, the group has one assignment, which a
coordinator on a broker distributes. The sections show what the users of such groups noticed, what
each join and each death cost, and who computed which assignment. All this comes from the tables of
the runs.

Reading order:

- `sides`: one group of one run, and its changes;
- `costs`: what one change cost;
- `measured`: costs on a real Kafka 1.1.1, and the formula for the reads of ZooKeeper;
- `felt_strips`, `growth_chart`, `plan_lanes`: the charts;
- `answers`: the differences between the designs;
- `section`: the sections.
"""
