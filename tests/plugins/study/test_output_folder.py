"""The output folder is whole or not there, and nothing that is already there is lost."""

from __future__ import annotations

import pytest

from kpp_study import StudyError
from kpp_study.study.output import FILES, output_folder


def fill(folder, text: str) -> None:
    for name in FILES:
        (folder / name).write_text(text)


def entries(folder) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_results_appear_together_at_the_end(tmp_path):
    with output_folder(tmp_path / "a" / "results") as folder:
        fill(folder, "new")
        assert not (tmp_path / "a" / "results").exists()
    assert entries(tmp_path / "a" / "results") == sorted(FILES)
    assert entries(tmp_path / "a") == ["results"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError])
def test_an_interrupted_run_leaves_nothing(tmp_path, interruption):
    with pytest.raises(interruption), output_folder(tmp_path / "results") as folder:
        fill(folder, "half")
        raise interruption
    assert entries(tmp_path) == []


def test_results_are_replaced_only_when_asked(tmp_path):
    output = tmp_path / "results"
    output.mkdir()  # an empty folder holds no results
    with output_folder(output) as folder:
        fill(folder, "old")
    with pytest.raises(StudyError, match="--overwrite"), output_folder(output):
        pass
    with pytest.raises(ValueError, match="stop"), output_folder(output, overwrite=True):
        raise ValueError("stop")
    assert (output / "report.html").read_text() == "old"
    with output_folder(output, overwrite=True) as folder:
        fill(folder, "new")
    assert (output / "report.html").read_text() == "new"
    assert entries(tmp_path) == ["results"]


def test_a_folder_with_other_files_is_never_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StudyError, match="thesis.tex"), output_folder(tmp_path, overwrite=True):
        pass
    assert entries(tmp_path) == ["thesis.tex"]


def test_a_file_is_no_output_folder(tmp_path):
    (tmp_path / "results").write_text("a file")
    for output in (tmp_path / "results", tmp_path / "results" / "below"):
        with pytest.raises(StudyError, match="not a folder"), output_folder(output, overwrite=True):
            pass


def test_results_appearing_meanwhile_are_not_lost(tmp_path):
    output = tmp_path / "results"
    with pytest.raises(StudyError, match="--overwrite"), output_folder(output) as folder:
        fill(folder, "ours")
        output.mkdir()
        fill(output, "theirs")
    assert (output / "report.html").read_text() == "theirs"
