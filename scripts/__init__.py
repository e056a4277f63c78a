"""What keeps the project: documents from its code, pictures from its reports, figures of it."""
