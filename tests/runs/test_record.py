"""What a record says of the program that made it."""

import subprocess

from mdmt.runs.record import commit


def git(folder, *arguments):
    who = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    done = subprocess.run(
        ["git", "-C", folder, *who, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_the_commit_of_the_package(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert commit(package) is None  # in no repository
    git(tmp_path, "init", "-q")
    commit.cache_clear()
    assert commit(package) is None  # in a repository that does not know it, as an environment is
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    git(tmp_path, "tag", "-am", "x", "v1")
    commit.cache_clear()
    head = git(tmp_path, "rev-parse", "HEAD")[:12]
    assert commit(package) == head
    (package / "__init__.py").write_text("changed = True\n")
    commit.cache_clear()
    assert commit(package) == f"{head}-dirty"
