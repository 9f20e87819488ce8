"""Vocabularies: normalising, learning and encoding, and tokenizer folders on disk."""
