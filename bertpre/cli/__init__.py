"""The command line: one short file per command, and ``render``, which prints."""
