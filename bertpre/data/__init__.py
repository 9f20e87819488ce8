"""Examples: tokens on disk, pairs as an index over them, masks as a pure function, batches."""
