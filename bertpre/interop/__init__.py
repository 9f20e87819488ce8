"""In and out of the Hugging Face world, and seeing what one has."""
