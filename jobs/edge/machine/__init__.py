"""This machine: data directories, disks, memory, Java, jars, compiled kernels."""
