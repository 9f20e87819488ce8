"""Word counts that do not fit in memory, on disk, in parts that do."""

import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping

_PARTS = 64  # of a corpus with ten million different words, each takes some 25 MB


class Spill:
    """Adds up counts over any number of calls; a word is always in the same part."""

    def __init__(self) -> None:
        # Without names, so that nothing is left behind however the process ends.
        self._files = [tempfile.TemporaryFile() for _ in range(_PARTS)]  # noqa: SIM115

    def add(self, counts: Mapping[str, int]) -> None:
        """Write counts away.

        Args:
            counts: words without white space, with their counts.
        """
        lines: list[list[bytes]] = [[] for _ in self._files]
        for word, count in counts.items():
            encoded = word.encode()
            lines[zlib.crc32(encoded) % _PARTS].append(b"%s %d\n" % (encoded, count))
        for file, part in zip(self._files, lines, strict=True):
            file.write(b"".join(part))

    def parts(self) -> Iterator[Counter[str]]:
        """Yield the sums, part by part, and give the disk back."""
        for file in self._files:
            file.seek(0)
            sums: Counter[str] = Counter()
            for line in file:
                word, count = line.split(b" ")
                sums[word.decode()] += int(count)
            file.close()
            yield sums
