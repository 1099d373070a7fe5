# Runs all tests of a folder "tests" of rdma-core and prints a line of JSON for each: its name, how
# it ended, and why.
import json
import os
import sys
import unittest

folder = os.getcwd()
sys.path[:0] = [folder, os.path.dirname(folder)]

import tests  # noqa: E402
from args_parser import parser  # noqa: E402

parser.parse_args()


class Result(unittest.TestResult):
    def tell(self, test, how, why=""):
        print(json.dumps({"test": test.id(), "how": how, "why": why}), file=lines, flush=True)

    def addSuccess(self, test):
        self.tell(test, "ok")

    def addSkip(self, test, reason):
        self.tell(test, "skipped", reason)

    def addError(self, test, err):
        self.tell(test, "failed", self._exc_info_to_string(err, test))

    addFailure = addError


lines = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what tests print is not of interest
unittest.defaultTestLoader.loadTestsFromModule(tests).run(Result())
