"""Charts of a job as SVG shapes."""
