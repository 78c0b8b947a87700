"""What a job leaves in its directory beside the table: paths, failures, phases, replays."""
