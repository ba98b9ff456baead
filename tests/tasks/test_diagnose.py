from pathlib import Path

import pytest

from settings.catalogue import shipped_catalogue
from settings.milestones import shipped_milestones
from settings.source import BadInput
from tasks.diagnose import diagnose_file, excerpt


def test_a_file_that_cannot_be_read_is_named_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        diagnose_file(str(tmp_path / "gone.log"), shipped_catalogue(), shipped_milestones())
    with pytest.raises(BadInput, match="cannot be read: Is a directory"):
        diagnose_file(str(tmp_path), shipped_catalogue(), shipped_milestones())


def test_the_excerpt_holds_the_line_and_its_neighbours(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"".join(b"line %d\n" % i for i in range(1, 20)))
    assert [(i, b"line %d" % i) for i in range(6, 15)] == excerpt(str(log), 10)
    assert [(i, b"line %d" % i) for i in range(1, 6)] == excerpt(str(log), 1)
