"""Methods side by side over seeds, at equal accuracy. Reads files alone: no torch, numpy and scipy only."""
