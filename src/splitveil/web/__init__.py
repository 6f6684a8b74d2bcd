"""The local web app: a folder of runs in the browser (needs the extra `ui`).

index, summary    what runs there are, kept in SQLite beside them       guard, limit   who may ask, and how much
details, curves   runs, and comparisons of some, as JSON                form, jobs     runs that are started here
leak, live        a picture, a model and a noise level in; what an attacker would see out
app, routes       what the page asks for; services and worker live as long as the server
static            the built front end; its sources are in the top-level folder `web`
"""
