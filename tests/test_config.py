"""Settings: defaults, then a file, then words of the command line; whatever is unknown is refused with advice."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dkge_dist.config import ContextSettings, Settings, known_keys, load_settings
from dkge_dist.types import UsageError

ROOT = Path(__file__).parent.parent


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "settings.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(path: Path | None = None, *words: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_settings(path, words)
    return str(caught.value)


def test_defaults() -> None:
    settings = load_settings()
    assert settings == Settings()
    assert (settings.context.cap, settings.context.hops, settings.context.path_length) == (35, 1, 2)


def test_the_commented_file_says_what_the_defaults_are() -> None:
    path = ROOT / "configs" / "default.yaml"
    assert load_settings(path) == Settings()
    content = yaml.safe_load(path.read_text())
    keys = {f"{group}.{key}" for group, value in content.items() if isinstance(value, dict) for key in value}
    keys |= {key for key, value in content.items() if not isinstance(value, dict)}
    assert keys == set(known_keys())


def test_a_file_goes_over_defaults_and_words_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "context:\n  cap: 20\n  hops: 2\nseed: 1\n")
    settings = load_settings(path, ["context.hops=3", "threads=4"])
    assert settings == Settings(context=ContextSettings(cap=20, hops=3), seed=1, threads=4)


def test_the_last_word_holds() -> None:
    assert load_settings(None, ["seed=1", "seed=2"]).seed == 2


def test_dotted_keys_in_a_file(tmp_path: Path) -> None:
    assert load_settings(written(tmp_path, "context.cap: 20\n")).context.cap == 20


@pytest.mark.parametrize("text", ["", "# nothing\n", "context:\n  # cap: 20\nseed: 3\n", "context: {}\n"])
def test_groups_without_settings(tmp_path: Path, text: str) -> None:
    assert load_settings(written(tmp_path, text)).context == ContextSettings()


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("context.caps", "context.cap"),
        ("contxt.cap", "context.cap"),
        ("cap", "context.cap"),
        ("hops", "context.hops"),
        ("path_lenght", "context.path_length"),
        ("context.path-length", "context.path_length"),
        ("sede", "seed"),
        ("train.threads", "threads"),
    ],
)
def test_unknown_keys_get_the_nearest_one(tmp_path: Path, key: str, nearest: str) -> None:
    problem = f"no setting {key!r}; did you mean {nearest!r}?"
    assert refusal(None, f"{key}=1") == f"command line: {problem}"
    path = written(tmp_path, f"{key}: 1\n")
    assert refusal(path) == f"{path}: {problem}"


def test_unknown_keys_that_are_near_nothing(tmp_path: Path) -> None:
    assert refusal(None, "xyzzy=1") == "command line: no setting 'xyzzy'"
    path = written(tmp_path, "7: 1\n")
    assert refusal(path) == f"{path}: no setting '7'"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("context:\n  cap:\n    deeper: 1\n", "context.cap.deeper"),
        ("context: 5\n", "context"),
        ("seed: {x: 1}\n", "seed.x"),
    ],
)
def test_groups_and_settings_are_not_mixed_up(tmp_path: Path, text: str, key: str) -> None:
    assert f"no setting {key!r}" in refusal(written(tmp_path, text))


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("context.cap=0", "setting context.cap=0: Input should be greater than or equal to 1"),
        ("context.cap=5000", "setting context.cap=5000: Input should be less than or equal to 4096"),
        ("context.hops=5", "setting context.hops=5: Input should be less than or equal to 4"),
        ("context.path_length=0", "setting context.path_length=0: Input should be greater than or equal to 1"),
        ("seed=-1", "setting seed=-1: Input should be greater than or equal to 0"),
        ("seed=many", "setting seed='many': Input should be a valid integer"),
        ("seed=1.5", "setting seed=1.5: Input should be a valid integer"),
        ("seed=", "setting seed=None: Input should be a valid integer"),
        ("seed=[", "setting seed='[': not a YAML value"),
        ("seed", "'seed': settings are given as key=value"),
        ("=5", "command line: no setting ''"),
        ("", "'': settings are given as key=value"),
    ],
)
def test_values_that_cannot_be(word: str, problem: str) -> None:
    assert refusal(None, word).startswith(problem)


def test_values_that_cannot_be_in_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, "context:\n  cap: none\n")
    assert refusal(path).startswith("setting context.cap='none': Input should be a valid integer")


@pytest.mark.parametrize("text", ["- 1\n- 2\n", "just words\n", "7\n"])
def test_files_that_hold_something_else(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    assert refusal(path) == f"{path}: expected `key: value` lines"


@pytest.mark.parametrize("text", [b"a: [\n", b"\xff\xfe\n", b"a: b: c\n", b"!!python/object:os.system {}\n"])
def test_files_that_are_no_yaml(tmp_path: Path, text: bytes) -> None:
    path = written(tmp_path, text)
    assert refusal(path).startswith(f"{path}: not YAML: ")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert refusal(tmp_path / "absent.yaml") == f"{tmp_path}/absent.yaml: No such file or directory"
    assert refusal(tmp_path) == f"{tmp_path}: Is a directory"


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_settings().seed = 8  # type: ignore[misc]
