"""The command line: one short file a command, and ``render``, which decides how things look."""
