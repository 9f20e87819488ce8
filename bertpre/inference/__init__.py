"""What fine-tuned and pretrained models are asked: labels, vectors, fillings."""
