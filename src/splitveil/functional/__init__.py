"""Pure tensor mathematics: no parameters, no state, no host synchronisation.

The conditional-entropy losses share one anatomy, and each step is written once here:
assignment of samples to centres -> dispersion around them -> hinge against the noise floor -> reduction to one number.
"""
