"""What is in a folder, in a terminal or as a page."""
