import sys

from asterism.console import Console


def test_quiet_says_nothing(capsys):
    console = Console(quiet=True)
    console.update("a")
    console.line("b")
    console.clear()
    assert capsys.readouterr() == ("", "")


def test_a_log_gets_plain_lines_now_and_then(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    console = Console()
    for second in range(1, 25):
        clock[0] = float(second)
        console.update(f"at {second}")
    console.line("done")
    console.clear()
    assert capsys.readouterr().err == "at 10\nat 20\ndone\n"


def test_a_terminal_gets_one_live_line_that_fits(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    console = Console()
    clock[0] = 1.0
    console.update("x" * 50)
    console.line("stays")
    written = capsys.readouterr().err
    assert written == "\r\033[K" + "x" * 19 + "\r\033[Kstays\n"
