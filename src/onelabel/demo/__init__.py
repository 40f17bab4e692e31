"""The whole way on embedded pictures: compare, train, recover, report.

from onelabel.demo import run_demo
found = run_demo("runs/demo")
"""

from onelabel.demo.run import run_demo
from onelabel.demo.settings import FULL, TINY, DemoSettings

__all__ = ["FULL", "TINY", "DemoSettings", "run_demo"]
