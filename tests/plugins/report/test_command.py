"""`kpp report`: any saved explanation, and helpful errors for other files."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kpp.__main__ import main


@pytest.fixture
def kpp_report():
    return lambda *arguments: CliRunner().invoke(main, ["report", *map(str, arguments)])


@pytest.fixture
def saved(make_explanation, tmp_path):
    path = tmp_path / "explanation.nc"
    make_explanation(3, draws=True, attrs={"target": "price"}).save(path)
    return path


@pytest.mark.slow
def test_the_report_lies_beside_the_explanation(kpp_report, saved, read_page):
    result = kpp_report(saved)
    output = saved.with_suffix(".html")
    assert (result.exit_code, result.output) == (0, f"Done. The report is {output}\n")
    page = read_page(output.read_text(encoding="utf-8"))
    assert page.find("h1")[0][1] == "Explanation of price"
    assert len(page.find("details", class_="waterfall")) == 3


@pytest.mark.slow
def test_output_and_title_can_be_chosen(kpp_report, saved, read_page, tmp_path):
    output = tmp_path / "report.html"
    assert kpp_report(saved, "--output", output, "--title", "<Prices>").exit_code == 0
    assert read_page(output.read_text(encoding="utf-8")).find("title")[0][1] == "<Prices>"


@pytest.mark.slow_variants("options2", "options1")
@pytest.mark.parametrize("options", [{}, {"covariance": True}, {"draws": True, "covariance": True}])
def test_every_kind_of_explanation_has_a_report(kpp_report, make_explanation, tmp_path, options):
    make_explanation(2, **options).save(tmp_path / "e.nc")
    assert kpp_report(tmp_path / "e.nc").exit_code == 0
    assert ("its 90% interval" in (tmp_path / "e.html").read_text(encoding="utf-8")) == bool(options)


@pytest.mark.slow
def test_a_zarr_store_has_a_report(kpp_report, make_explanation, tmp_path):
    pytest.importorskip("zarr")
    pytest.importorskip("dask")
    make_explanation(2, draws=True).save(tmp_path / "e.zarr")
    assert kpp_report(tmp_path / "e.zarr").exit_code == 0
    assert (tmp_path / "e.html").is_file()


@pytest.mark.slow
def test_an_existing_file_is_replaced_only_if_asked(kpp_report, saved):
    output = saved.with_suffix(".html")
    output.write_text("mine")
    result = kpp_report(saved)
    assert result.exit_code == 2
    assert "add --overwrite" in result.output
    assert output.read_text() == "mine"
    assert kpp_report(saved, "--overwrite").exit_code == 0
    assert output.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("content", [b"", b"<html></html>", b"\x89HDF\r\n\x1a\n"])
def test_other_files_are_refused_with_advice(kpp_report, tmp_path, content):
    (tmp_path / "other.nc").write_bytes(content)
    result = kpp_report(tmp_path / "other.nc")
    assert result.exit_code == 2
    assert "`kpp.Explanation.save`" in result.output
    assert not (tmp_path / "other.html").exists()


def test_a_file_that_is_no_explanation_is_refused(kpp_report, tmp_path):
    import xarray as xr

    from kpp.storage import netcdf

    netcdf.write(tmp_path / "posterior.nc", xr.Dataset({"a": 1.0}))
    result = kpp_report(tmp_path / "posterior.nc")
    assert result.exit_code == 2
    assert "holds no explanation" in result.output


@pytest.mark.slow
def test_bad_places_are_refused(kpp_report, saved, tmp_path):
    for arguments, said in [
        ((tmp_path / "missing.nc",), "is not a file"),
        ((saved, "--output", tmp_path), "is a folder"),
        ((saved, "--output", tmp_path / "no" / "r.html"), "does not exist"),
    ]:
        result = kpp_report(*arguments)
        assert result.exit_code == 2
        assert said in result.output
