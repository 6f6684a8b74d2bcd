"""Tensor mathematics without parameters of its own.

What runs in a training step never waits for the host; what runs once per epoch (`groups`, `kmeans`) may.

The conditional-entropy losses share one anatomy, and each step is written once here:
assignment of samples to centres -> dispersion around them -> hinge against the noise floor -> reduction to one number.
"""
