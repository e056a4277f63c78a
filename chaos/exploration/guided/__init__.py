"""Guided search: plans that reached rare situations are kept, and later seeds change them a little.

A search that draws every plan of faults at random seldom reaches rare situations (coverage marks).
If a plan has reached such a situation, the search should try similar plans: they probably reach the
situation again, and perhaps something new. So a share of the seeds do not draw a plan. Each of
these seeds takes a kept plan, its parent, and mutates (changes) this plan a little.

A mutated plan may be mutated again. The seeds from the drawn plan to the last mutation are called
the lineage of the last plan. For example, (7, 31, 95) means that seed 7 drew a plan, seed 31
mutated this plan, and seed 95 mutated the plan of seed 31. The lineage alone determines the plan.

The lineage of a seed depends only on the results of earlier blocks of seeds. So the same seeds
give the same plans, on any number of workers, and even after a resumption.

Reading order: `genome` (a plan and its origin), `mutation` (one step), `lineage` (all steps),
`coverage` (marks and pairs of marks), `corpus` (kept plans), `guidance` (choice of the seeds to
mutate and of their parents), `report`.
"""
