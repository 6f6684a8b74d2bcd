"""What would leak? One picture, one model, one noise level: what is sent, what the model says, what leaks."""
