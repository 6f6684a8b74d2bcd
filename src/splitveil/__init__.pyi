"""The types of what __init__.py loads on first use, for type checkers and editors."""

from splitveil import attacks as attacks
from splitveil import data as data
from splitveil import defences as defences
from splitveil import models as models
from splitveil import serving as serving
from splitveil import surrogates as surrogates
from splitveil.audit.api import audit as audit
from splitveil.core.config import Config as Config
from splitveil.core.config import load_config as load_config
from splitveil.models.cutting import split as split
from splitveil.models.split import SplitModel as SplitModel
from splitveil.report.api import build_report
from splitveil.serving.export import export_run
from splitveil.training.api import train as train
from splitveil.training.loaded_run import load_run as load_run

__version__: str
export = export_run
report = build_report
