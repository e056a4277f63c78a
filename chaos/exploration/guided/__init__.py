"""Guided search: plans that reached rare coverage marks are kept, and later seeds mutate them.

A plan is the list of faults of a run. A coverage mark is a rare situation that a run may reach. A
seed either draws its plan or mutates a kept plan, its parent. A lineage is the list of seeds from a
drawn plan to a mutated one. The plan of a mutated seed depends only on its lineage, and the lineage
depends only on the results of earlier blocks of seeds. So the same seeds give the same plans, on
any worker, in any order, in one session or after a resume.

Reading order: `genome` (a plan and its origin), `mutation` (one step), `lineage` (all steps),
`coverage` (marks and pairs of marks), `corpus` (kept plans), `guidance` (choice of the seeds to
mutate and of their parents), `report`.
"""
