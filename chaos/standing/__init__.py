"""A cluster that stays: a run with an open end, which others break, heal and end from outside.

Reading order: `definition` (an experiment from a file, from flags, or from both), `messages` (what
a cluster is asked, and what it answers), `registry` (which clusters are up, by name), `control`
(sockets between a cluster and those who ask it), `mailbox` (from the sockets' threads to the run's
loop), `ordered_faults` (from an order to a fault of a plan), `facts` (the answer to `status`),
`run` (the run itself). Nothing here knows the command line.
"""
