"""Tools for those who work on this project.

- `docs` writes docs/generated: reference pages, made from the code.
- `report_pictures` writes docs/pictures: screenshots of reports.
- `house` prints figures of the project's structure, such as numbers of lines.
- `compiled` compiles the modules in which a simulation spends most of its time (`make fast`).
"""
