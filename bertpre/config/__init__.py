"""Options: their schema, and how a YAML file, ``--set`` and flags become one ``Config``."""
