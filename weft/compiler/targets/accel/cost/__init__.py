"""What a tiling costs, and which are tried first."""
