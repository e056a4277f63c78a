"""Sight: the share of small changes of the code (mutants) that `explore` would report.

A mutant is one changed expression or statement of a package. `explore` searches for bugs by playing
seeds: random faults in a simulated cluster. A sample of mutants is drawn once. A sitting plays
seeds without a mutant ("sound") and with each mutant of the sample, and compares the findings. All
mutants are in one copy of the packages; a switch turns one of them on.

Reading order: `sampled` (draw of mutants, and their place in later code), `rewriting` and `probes`
(all mutants in one source, with the switch), `switched_tree` (the copy of the packages), `player`
(the process that plays in the copy), `records` (results of each mutant, as files), `code_digest`
(whether two sources run alike), `sitting` (seeds in order, with a journal to continue), `fates` (a
journal becomes a record), `unit_tests` (mutants that the unit tests kill), `sight_page`
(docs/SIGHT.md).
"""
