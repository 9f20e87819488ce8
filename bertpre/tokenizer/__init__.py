"""Vocabularies: learning them, tokenizer folders on disk, and encoding text.

word_counts and sampling count words, learning and extra_tokens choose tokens, vocabulary is the
stage; folder reads and writes what normalizing builds; chunks and piece_cache make tokenizer fast.
"""
