"""The methods of an explanation by topic: files, tables, pages, plots, uncertainty."""
