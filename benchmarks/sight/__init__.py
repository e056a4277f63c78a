"""The mutation score of the search: which drawn mutants `explore` reaches, sees and reports.

Reading order: `sampled` (drawn mutants, kept so that they are found again), `rewriting`, `probes`
(every mutant in one source, behind a switch), `switched_tree` (the copy of the packages), `player`
(the process inside the copy), `records` (what was seen of each mutant), `sitting` (seeds in order,
resumable), `fates` (a journal becomes a record), `unit_tests` (which of them the tests kill),
`sight_page` (docs/SIGHT.md).
"""
