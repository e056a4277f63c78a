"""Tools for the project itself: pages made from the code, pictures of reports, figures of both.

`docs` writes docs/generated, `report_pictures` docs/pictures; `house` prints the figures;
`compiled` is `make fast`.
"""
