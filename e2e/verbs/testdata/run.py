# Runs all tests of a folder "tests" of rdma-core and prints a line of JSON for each: its name, how
# it ended, and why; with PEER_VERBS also whether its ends were on two hosts.
import json
import os
import sys
import unittest

folder = os.getcwd()
sys.path[:0] = [folder, os.path.dirname(folder)]

import tests  # noqa: E402
from args_parser import parser  # noqa: E402

parser.parse_args()
pair = None
if "PEER_VERBS" in os.environ:  # those of a list, between two hosts
    import pair  # noqa: E402


class Result(unittest.TestResult):
    def tell(self, test, how, why=""):
        line = {"test": test.id(), "how": how, "why": why}
        if pair:
            line["pair"] = pair.between_hosts()
        print(json.dumps(line), file=lines, flush=True)

    def startTest(self, test):
        super().startTest(test)
        if pair:
            pair.begin()

    def addSuccess(self, test):
        self.tell(test, "ok")

    def addSkip(self, test, reason):
        self.tell(test, "skipped", reason)

    def addError(self, test, err):
        self.tell(test, "failed", self._exc_info_to_string(err, test))

    addFailure = addError


lines = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what tests print is not of interest
if pair:
    with open(os.environ["PEER_TESTS"]) as f:
        chosen = unittest.defaultTestLoader.loadTestsFromNames([name.strip() for name in f if not name.startswith("#")])
else:
    chosen = unittest.defaultTestLoader.loadTestsFromModule(tests)
chosen.run(Result())
