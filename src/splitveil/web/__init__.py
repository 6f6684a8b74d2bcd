"""The local web app: a folder of runs in the browser (needs the extra `ui`).

index, summary   what runs there are, kept in SQLite beside them        guard     who may ask
pages            curves, details and comparisons as JSON                jobs      runs that were started here
leak             a picture, a model and a noise level in; what an attacker would see out
static           the built front end; its sources are in the top-level folder `web`
"""
