"""The contract: job spec, SQL types, changelog record, limits. Imports nothing else of ours."""
