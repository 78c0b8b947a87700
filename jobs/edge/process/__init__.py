"""This machine and our own processes: files, locks, disks, Java, the embedded broker."""
