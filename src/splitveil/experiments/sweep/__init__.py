"""Sweeps: methods x strengths x seeds x data sets, each cell one ordinary run folder."""
