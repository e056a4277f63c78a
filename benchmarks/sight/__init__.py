"""Sight: measures how many bugs `explore` would find, with bugs that a program makes.

Such a bug is called a mutant: one changed expression or statement, such as `<` in place of `<=`. A
sample of mutants is drawn once. Then each seed is played without a mutant (the sound run) and with
each mutant of the sample. A mutant is found if it leads to a finding that the sound run lacks.

This takes many hours, so it is done in several sittings. All mutants are in one copy of the
packages, and a switch turns one of them on.

Reading order:
- `sampled` draws mutants, and finds them again in later code.
- `rewriting` and `probes` put all mutants into one source, with the switch.
- `switched_tree` makes the copy of the packages.
- `player` is the process that plays in the copy.
- `records` stores the results of each mutant as files.
- `code_digest` shows whether two sources run alike.
- `sitting` plays the seeds in order, with a journal that a later sitting continues.
- `fates` turns a journal into a record.
- `unit_tests` runs the unit tests with each mutant.
- `sight_page` makes docs/SIGHT.md.
"""
