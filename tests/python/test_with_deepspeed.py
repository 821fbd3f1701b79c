"""DeepSpeed's launcher: its ranks are found. The rest of it takes any loader as it is."""

import base64
import json
import sys

import launched
import trainers

trainers.need("deepspeed.launcher.launch")


class TestLauncher(launched.Launched):
    def test_ranks_are_found(self):
        here = base64.urlsafe_b64encode(json.dumps({"localhost": [0, 1]}).encode()).decode()
        launched.check_shares(self, self.launch(
            sys.executable, "-m", "deepspeed.launcher.launch", f"--world_info={here}",
            "--log_level=error", str(self.program)), None)
