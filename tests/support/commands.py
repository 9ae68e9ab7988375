"""Commands about a model, run in this process."""

from mdmt.cli.app import main


def run(*arguments):
    return main([str(argument) for argument in arguments])


def out_of(capsys, *arguments):
    assert run(*arguments) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys, *arguments):
    """The one line with which a command refuses."""
    capsys.readouterr()
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    return err


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def refused_new(capsys, tmp_path, *arguments):
    """A first delivery that is refused leaves no folder; the first line may say what was asked."""
    capsys.readouterr()
    assert run("learn", "new", *arguments, "--json") == 2
    assert not (tmp_path / "new").exists()
    return capsys.readouterr().err
