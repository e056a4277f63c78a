"""What keeps the project: documents from its code, pictures from its reports, figures of it.

`docs` writes docs/generated, `report_pictures` docs/pictures; `house` prints the figures;
`compiled` is `make fast`.
"""
