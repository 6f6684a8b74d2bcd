"""Many runs: sweeps, comparisons, a look into one run, and measurements of the surrogates themselves."""
