"""What happens to rows before the fold: consolidation, last images, times, windows."""
