"""The types of what __init__.py loads on first use, for type checkers and editors."""

from splitveil.serving.artefact import Artefact as Artefact
from splitveil.serving.artefact import read as read
from splitveil.serving.client import EdgeClient as EdgeClient
from splitveil.serving.export import export_model as export_model
from splitveil.serving.export import export_run as export_run
from splitveil.serving.halves import CloudHalf as CloudHalf
from splitveil.serving.halves import EdgeHalf as EdgeHalf
from splitveil.serving.manifest import Manifest as Manifest
from splitveil.serving.probing import FeatureClient as FeatureClient
from splitveil.serving.random_inputs import SecureSource as SecureSource
from splitveil.serving.random_inputs import SeededSource as SeededSource
from splitveil.serving.repeats import RepeatGuard as RepeatGuard
from splitveil.serving.transport import HttpTransport as HttpTransport
from splitveil.serving.transport import LocalTransport as LocalTransport
