"""Settings: defaults, then a file, then words of the command line; whatever is unknown is refused with advice."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from dkge_dist.settings import (
    PRESETS,
    ContextSettings,
    RetrainPolicy,
    Settings,
    known_keys,
    load_settings,
)
from dkge_dist.surfaces.requests.settings import all_settings, to_yaml
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


@pytest.mark.parametrize("preset", PRESETS)
def test_files_are_generated_from_the_settings(preset: str) -> None:
    path = ROOT / "configs" / f"{preset}.yaml"
    assert path.read_text() == to_yaml(preset), f"dkge settings --yaml --preset {preset} > configs/{preset}.yaml"
    assert load_settings(path) == load_settings(preset=preset)


def test_every_setting_is_explained_and_stands_in_the_file_once() -> None:
    settings = list(all_settings())
    assert [one.key for one in settings] == list(known_keys())
    assert all(one.explanation.endswith((".", "it.")) for one in settings)
    content = yaml.safe_load(to_yaml())
    experts = content.pop("expert")
    for one in settings:
        part = experts if one.expert else content
        *groups, name = one.key.split(".")
        for group in groups:
            part = part[group]
        assert part.pop(name) == one.default


def test_experts_settings_are_read_with_and_without_their_part(tmp_path: Path) -> None:
    expected = load_settings(None, ["online.replay=3"])
    assert load_settings(None, ["expert.online.replay=3"]) == expected
    assert load_settings(written(tmp_path, "expert:\n  online:\n    replay: 3\n  train:\n")) == expected
    assert load_settings(None, {"expert": {"online": {"replay": 3}}}) == expected
    assert "no setting 'online.replays'; did you mean 'online.replay'" in refusal(None, "expert.online.replays=3")


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


def test_files_and_words_go_over_a_preset(tmp_path: Path) -> None:
    path = written(tmp_path, "train:\n  batch_size: 200\n  margin: 5\n")
    train = load_settings(path, ["train.margin=7"], "paper").train
    assert (train.batch_size, train.margin, train.optimizer) == (200, 7.0, "sgd")


def test_a_preset_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="no preset 'papers': one of default, paper"):
        load_settings(preset="papers")


@pytest.mark.parametrize(
    "words",
    [
        ["train.sampler=bernoulli"],
        ["train.loss=margin"],
        ["train.sampler=bernoulli", "train.loss=self_adversarial"],
        ["train.sampler=shared", "train.loss=margin"],
    ],
)
def test_samplers_and_losses_that_do_not_go_together(tmp_path: Path, words: list[str]) -> None:
    problem = "settings: train.loss=margin goes with train.sampler=bernoulli, the other losses with shared"
    assert refusal(None, *words) == problem
    assert refusal(written(tmp_path, "".join(word.replace("=", ": ") + "\n" for word in words))) == problem


@pytest.mark.parametrize(
    ("sampler", "loss"), [("bernoulli", "margin"), ("shared", "softmax"), ("shared", "self_adversarial")]
)
def test_samplers_and_losses_that_go_together(sampler: str, loss: str) -> None:
    train = load_settings(None, [f"train.sampler={sampler}", f"train.loss={loss}"]).train
    assert (train.sampler, train.loss) == (sampler, loss)


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:12"])
def test_devices(device: str) -> None:
    assert load_settings(None, [f"device={device}"]).device == device


@pytest.mark.parametrize(
    "device", ["gpu", "cuda:", "cuda:x", "cpu:0", "CPU", "cuda:-1", " cpu", "xla", "cuda:1x", "''"]
)
def test_devices_that_there_are_not(device: str) -> None:
    assert refusal(None, f"device={device!r}").startswith("setting device=")


def test_a_device_with_a_line_end(tmp_path: Path) -> None:
    assert refusal(written(tmp_path, 'device: "cpu\\n"\n')).startswith("setting device=")


@pytest.mark.parametrize(
    ("triples", "size", "factor"), [(0, 1000, 1), (50_000, 1000, 1), (100_000, 2000, 2**0.5), (10**7, 4000, 2)]
)
def test_batches_grow_with_the_graph_and_the_rate_with_them(triples: int, size: int, factor: float) -> None:
    assert load_settings().train.batch_for(triples) == (size, pytest.approx(factor))
    assert load_settings(None, ["train.batch_size=300"]).train.batch_for(triples) == (300, 1.0)


@pytest.mark.parametrize("text", ["null", "~", ""])
def test_no_learning_rate_of_its_own_for_dense_parameters(tmp_path: Path, text: str) -> None:
    assert load_settings(None, [f"train.dense_learning_rate={text}"]).train.dense_learning_rate is None
    path = written(tmp_path, f"train:\n  dense_learning_rate: {text}\n")
    assert load_settings(path).train.dense_learning_rate is None
    assert refusal(None, f"train.learning_rate={text}").startswith("setting train.learning_rate=None")


@pytest.mark.parametrize(
    "word",
    [
        "train.learning_rate=0", "train.learning_rate=.inf", "train.learning_rate=.nan", "train.dense_learning_rate=0",
        "train.dense_learning_rate=-1", "train.margin=-1", "train.margin=.nan", "train.batch_size=0",
        "train.negatives=0", "train.max_epochs=0", "train.eval_every=0", "train.patience=-1", "train.max_seconds=-1",
        "train.max_seconds=.nan", "train.checkpoint_seconds=-1", "train.checkpoint_seconds=.nan",
        "train.valid_triples=0", "train.valid_candidates=0", "train.init_scale=0", "train.sampler=other",
        "train.loss=other", "train.optimizer=adam", "train.schedule=cosine", "train.hide_targets=maybe",
        "train.hide_targets=1.1",
        "evidence.max_candidates=7", "evidence.max_neighbours=0", "evidence.offset=-1", "evidence.enabled=maybe",
        "model.dim=0", "model.entity_layers=4", "model.relation_layers=0", "seed=9223372036854775808", "threads=-1",
    ],
)  # fmt: skip
def test_values_of_a_training_that_cannot_be(word: str) -> None:
    assert refusal(None, word).startswith(f"setting {word.partition('=')[0]}=")


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("never", RetrainPolicy()),
        ("mrr_drop > 3%", RetrainPolicy(mrr_drop=3.0)),
        ("mrr_drop > 0.25%", RetrainPolicy(mrr_drop=0.25)),
        ("added_mrr < 0.7", RetrainPolicy(added_mrr=0.7)),
        ("every 30 nights", RetrainPolicy(nights=30)),
        ("mrr_drop > 5% or every 9 nights", RetrainPolicy(mrr_drop=5.0, nights=9)),
        ("every 9 nights or added_mrr < 1 or mrr_drop > 5%", RetrainPolicy(5.0, 1.0, 9)),
        ("never or every 9 nights", RetrainPolicy(nights=9)),
    ],
)
def test_retrain_policies(text: str, policy: RetrainPolicy) -> None:
    assert RetrainPolicy.parse(text) == policy
    assert load_settings(None, [f"online.retrain_when={text}"]).online.retrain_policy == policy


@pytest.mark.parametrize(
    "text",
    ["sometimes", "Never", "mrr_drop > 3", "mrr_drop>3%", "mrr_drop > -3%", "mrr_drop > .5%", "every 0 nights",
     "every 1.5 nights", "every 30 days", "never\n", " never", "", "added_mrr < 70%", "added_mrr > 0.7",
     "mrr_drop > 3% or", "or never", "mrr_drop > 3% and never", "never or  never"],
)  # fmt: skip
def test_retrain_policies_that_there_are_not(text: str) -> None:
    with pytest.raises(ValueError, match="expected `never`, `mrr_drop > 3%`, "):
        RetrainPolicy.parse(text)
    assert refusal(None, f"online.retrain_when={json.dumps(text)}").startswith(
        f"setting online.retrain_when={text!r}: "
    )


def test_a_retrain_policy_has_one_limit_of_a_kind() -> None:
    with pytest.raises(ValueError, match="`mrr_drop > 5%` comes after another condition of its kind"):
        RetrainPolicy.parse("mrr_drop > 3% or never or mrr_drop > 5%")


def test_the_default_policy_warns_of_a_drop_and_of_nights_that_are_not_learnt() -> None:
    assert Settings().online.retrain_policy == RetrainPolicy(3.0, 0.7, None)
    assert Settings().online.on_drift == "warn"
    assert refusal(None, "online.on_drift=never").startswith("setting online.on_drift='never': ")


@pytest.mark.parametrize("section", ["train", "online"])
def test_the_metric_of_early_stopping_is_one_where_larger_is_better(section: str) -> None:
    for metric in ("mrr", "hits@1", "hits@3", "hits@10"):
        settings = load_settings(None, [f"{section}.early_stopping_metric={metric}"])
        assert getattr(settings, section).early_stopping_metric == metric
    assert refusal(None, f"{section}.early_stopping_metric=mr").startswith(f"setting {section}.early_stopping_metric=")


def test_pipes_and_large_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "a pipe cannot be read" in refusal(tmp_path / "pipe")
    assert "more than 1,048,576" in refusal(written(tmp_path, "#" * (1 << 20) + "\n"))


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, "a: " + "[" * 100_000])
def test_deeply_nested_files_are_no_yaml(tmp_path: Path, text: str) -> None:
    assert "not YAML" in refusal(written(tmp_path, text))
    assert "not a YAML value" in refusal(None, f"seed={text}")


def test_groups_within_groups_are_refused(tmp_path: Path) -> None:
    text = "model:\n" + "".join(f"{' ' * level}a:\n" for level in range(1, 50)) + f"{' ' * 50}b: 1\n"
    assert "there are no groups within groups" in refusal(written(tmp_path, text))


@pytest.mark.parametrize(("opens", "closes"), ["[]", "{}"])
def test_values_that_repeat_themselves_are_not_written_out(tmp_path: Path, opens: str, closes: str) -> None:
    """Nine lines that would be 9^9 words."""
    lines = ["a0: &a0 x" if opens == "[" else "a0: &a0 {x: 1}"]
    for level in range(1, 10):
        item = (
            ", ".join([f"*a{level - 1}"] * 9) if opens == "[" else ", ".join(f"k{i}: *a{level - 1}" for i in range(9))
        )
        lines.append(f"a{level}: &a{level} {opens}{item}{closes}")
    lines.append("seed: *a9")
    assert len(refusal(written(tmp_path, "\n".join(lines)))) < 1000
    assert len(refusal(written(tmp_path, "\n".join(["seed:", *(f"  {line}" for line in lines)])))) < 1000


def test_threads_that_no_machine_has() -> None:
    assert f"this machine has {os.cpu_count()} cores" in refusal(None, "threads=999999999")
    assert load_settings(None, ["threads=64"]).threads == 64
