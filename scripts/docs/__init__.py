"""The generators of docs/generated: `reference` writes all pages; a test compares them."""
