"""weft inside PyTorch: a backend of ``torch.compile``. `backend` needs PyTorch; this package does not."""
