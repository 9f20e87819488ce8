"""Files, tables and archives to documents of sentences, and what was found in them."""
