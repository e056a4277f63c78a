"""Groups on ZooKeeper compared with groups that have a coordinator, on the comparison page.

In the older design, each member computes its partitions from data in ZooKeeper. In the newer
design, a coordinator on a broker distributes an assignment. A view is the set of the group's
members that one member read from ZooKeeper; a plan is the assignment that it computes from its
view.

The section shows the waits and gaps of each group, the cost of each change of its members, and the
plans. All of this comes from the tables of the runs.

Reading order: `sides` (one group of one run, and its changes), `costs` (cost of one change),
`measured` (this cost on a real Kafka 1.1.1, and the formula for the reads), `felt_strips`,
`growth_chart` and `plan_lanes` (pictures), `answers` (differences between the designs), `section`.
"""
