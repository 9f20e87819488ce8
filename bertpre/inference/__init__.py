"""Use of fine-tuned and pretrained models: labels, sentence vectors, masked words."""
