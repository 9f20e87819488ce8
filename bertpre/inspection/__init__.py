"""The contents of a folder, on a terminal or as an HTML page."""
