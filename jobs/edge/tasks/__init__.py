"""What runs in Spark's Python workers: decode a range, keep last images, fold a bucket."""
