"""In and out of the Hugging Face world and ONNX."""
