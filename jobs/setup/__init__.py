"""Set up what pip does not install: Java, JVM jars, the archive of Spark's classes, kernels.

Used by `retally setup`, and by setup/install.py of a checkout before any package is installed. So
its files import the standard library only, and files of ours that need no more.
"""
