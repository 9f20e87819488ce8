"""``python -m bertpre`` is the ``bertpre`` command."""

from bertpre.cli.main import main

if __name__ == "__main__":
    main()
