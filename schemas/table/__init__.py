"""What a job leaves on disk: epoch rows, changelog records, paths, failures."""
