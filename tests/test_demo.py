import pytest

from asterism import demo


def test_only_an_earlier_demo_is_replaced(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match=r"holds thesis\.txt, which no demo wrote"):
        demo.run_demo(tmp_path, quiet=True)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.slow
def test_a_small_demo_from_end_to_end(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "CLASSES", 30)
    monkeypatch.setattr(demo, "BUDGET", {**demo.BUDGET, "width": 4, "epochs": 1})
    for _ in range(2):  # the second takes the place of the first
        assert demo.run_demo(tmp_path / "demo", quiet=True)
    table = capsys.readouterr().out
    for name in demo.NAMES.values():
        assert name.split()[0] in table
    assert "29" in table  # the dimensions that a simplex of 30 needs
    page = (tmp_path / "demo" / "index.html").read_text()
    assert "cannot exist" in page
    assert {p.name for p in (tmp_path / "demo").iterdir()} == {*demo.NAMES, "sphere", "index.html"} - {"etf"}
