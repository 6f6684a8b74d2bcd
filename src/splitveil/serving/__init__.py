"""Wire format, edge client and cloud server: reserved for the serving work (DESIGN 2); nothing is here yet."""
