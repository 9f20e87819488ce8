"""Import from Hugging Face, export to Hugging Face and ONNX."""
