"""All four stages in one call, and what was done of them."""
