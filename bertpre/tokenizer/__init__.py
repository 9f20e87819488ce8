"""Vocabularies: learning them, tokenizer folders on disk, and encoding text.

word_counts and sampling count words; learning and extra_tokens choose tokens; vocabulary runs the
stage. folder saves and loads what normalizing builds; chunks and piece_cache make encoding in
tokenizer fast.
"""
