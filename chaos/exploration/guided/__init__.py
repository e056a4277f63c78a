"""Guided search: plans that reached rare situations are kept, and later seeds change them a little.

A search that draws every plan of faults at random seldom reaches rare situations (coverage marks).
A plan that has reached one is a good start: a small change of it probably reaches the situation
again, and perhaps something new. So a share of the seeds do not draw a plan. They take a kept plan,
their parent, and mutate it.

Such a plan may be mutated again. The seeds from the drawn plan to the last mutation are called its
lineage: (7, 31, 95) means that seed 7 drew a plan, seed 31 mutated it, and seed 95 mutated the
result. The lineage alone determines the plan. It depends only on the results of earlier blocks of
seeds, so the same seeds give the same plans, on any number of workers and also after a resume.

Reading order: `genome` (a plan and its origin), `mutation` (one step), `lineage` (all steps),
`coverage` (marks and pairs of marks), `corpus` (kept plans), `guidance` (choice of the seeds to
mutate and of their parents), `report`.
"""
