"""Sight: measures how many bugs `explore` would find, with bugs that a program makes.

Such a bug is called a mutant: one changed expression or statement, such as `<` in place of `<=`. A
sample of mutants is drawn once. Then each seed is played without a mutant (the sound run) and with
each mutant of the sample. A mutant is found if it leads to a finding that the sound run lacks.

This takes many hours, so it is done in several sittings. All mutants are in one copy of the
packages, and a switch turns one of them on.

Reading order: `sampled` (draw of mutants, and their place in later code), `rewriting` and `probes`
(all mutants in one source, with the switch), `switched_tree` (the copy of the packages), `player`
(the process that plays in the copy), `records` (results of each mutant, as files), `code_digest`
(whether two sources run alike), `sitting` (seeds in order, with a journal to continue), `fates` (a
journal becomes a record), `unit_tests` (mutants that the unit tests kill), `sight_page`
(docs/SIGHT.md).
"""
