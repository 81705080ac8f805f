"""Runs the splitters of other libraries, each in a virtual environment of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from peers import REQUIREMENTS

ONE_CORE = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}


class Peers:
    """The other libraries, installed once below a folder."""

    def __init__(self, folder: Path, tokenizer: Path) -> None:
        self._folder = folder
        self._tokenizer = tokenizer

    def split(self, name: str, size: int, texts: list[str]) -> dict[str, Any]:
        """``spans`` of the chunks of each text, and the processor ``seconds`` they took, on one core."""
        done = subprocess.run(
            [self._python(name), str(Path(__file__).with_name("peers.py")), name, str(self._tokenizer), str(size)],
            input=json.dumps(texts),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env=os.environ | ONE_CORE | {"HF_HUB_OFFLINE": "1"},
        )
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def _python(self, name: str) -> Path:
        needs = REQUIREMENTS[name]
        folder = self._folder / hashlib.sha256(repr(needs).encode()).hexdigest()[:12]
        python = folder / "bin/python"
        if not (folder / ".ready").exists():
            print(f"installing {', '.join(needs)}", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "-qqq", *needs], check=True)
            (folder / ".ready").touch()
        return python
