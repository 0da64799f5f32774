"""What every `TrainingTable` promises, wherever its rows are. Test classes of implementations inherit `TableContract`.

An implementation says how to make a table at its start values and how to open one from a store. Everything else goes
through the protocol. Values are compared with `Shard`, to the bit, and with the formulas written in plain numpy.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dkge_dist.store.manifest import TableEntry
from dkge_dist.store.storage import Storage, open_storage
from dkge_dist.store.tables import load_table, save_table
from dkge_dist.tables.index import VectorIndex
from dkge_dist.tables.initializer import RowInitializer
from dkge_dist.tables.shard import EPSILON, Shard
from dkge_dist.tables.table import COUNTED, TrainingTable
from dkge_dist.types import ROW, TRAINED, Array, DkgeError, Field
from tests.tables.index_contract import IndexContract
from tests.tables.rows import (
    ADAGRAD,
    BLOCK,
    DIM,
    EVERY_ROW,
    EVERYTHING,
    ROWS,
    SGD,
    START,
    Rows,
    assert_same_rows,
    gathered,
    overlapping_batches,
    pushed,
    random_batch,
    random_gradients,
    random_rows,
    random_vectors,
    rows_of,
    some_gradients,
    whole_numbers,
)


class TableContract(IndexContract):
    """Inherit, implement the two hooks, and call the class Test…"""

    @abstractmethod
    def make_table(self, start: RowInitializer) -> TrainingTable:
        """A table at start values, in blocks of `BLOCK` rows, as its only worker sees it."""

    @abstractmethod
    def open_table(self, storage: Storage, entries: dict[Field, TableEntry], rows: int) -> TrainingTable:
        """The fields of `entries`, as they are in a store, with room for `rows` rows."""

    @pytest.fixture
    def table(self) -> Iterator[TrainingTable]:
        """A table at its start values."""
        table = self.make_table(START)
        yield table
        table.close()

    @pytest.fixture
    def shard(self) -> Shard:
        """The same rows, to compare with."""
        return Shard(START.whole())

    def index_of(self, values: Array) -> VectorIndex:
        """The joint vectors of a table."""
        table = self.make_table(START)
        table.write(Field.JOINT, EVERY_ROW, values)
        return table.index

    # Size and start values

    def test_it_tells_its_size(self, table: TrainingTable) -> None:
        assert (table.rows, table.dim) == (ROWS, DIM)

    def test_it_begins_with_start_values(self, table: TrainingTable) -> None:
        found = table.pull(EVERYTHING)
        assert_same_rows(found, START.whole())
        assert not found[Field.JOINT].any()

    # Pull

    def test_a_pull_keeps_the_order_asked_for(self, table: TrainingTable) -> None:
        wanted = {Field.CONTEXT: rows_of(149, 0, 77, 8, 7), Field.KNOWLEDGE: rows_of(3)}
        whole = START.whole()
        assert_same_rows(table.pull(wanted), {field: whole[field][rows] for field, rows in wanted.items()})

    def test_a_pull_of_no_rows(self, table: TrainingTable) -> None:
        found = table.pull({Field.KNOWLEDGE: rows_of(), Field.JOINT: rows_of()})
        assert {field: values.shape for field, values in found.items()} == {
            Field.KNOWLEDGE: (0, DIM),
            Field.JOINT: (0, DIM),
        }

    def test_pulled_rows_belong_to_the_caller(self, table: TrainingTable) -> None:
        for values in table.pull(EVERYTHING).values():
            values[:] = 7
        assert_same_rows(table.pull(EVERYTHING), START.whole())

    # Prefetch

    def test_a_pull_with_its_ticket_gives_the_same_rows(self, table: TrainingTable) -> None:
        wanted = {field: rows_of(140, 3, 20) for field in Field}
        ticket = table.prefetch(wanted)
        assert_same_rows(table.pull(wanted, ticket), gathered(Shard(START.whole()), wanted))

    def test_a_prefetch_from_another_thread(self, table: TrainingTable, shard: Shard) -> None:
        rng = np.random.default_rng(0)
        batches = [random_batch(rng) for _ in range(6)]
        with ThreadPoolExecutor(1) as pool:
            ticket = pool.submit(table.prefetch, batches[0]).result(60)
            for batch, following in itertools.pairwise(batches):
                coming = pool.submit(table.prefetch, following)
                assert_same_rows(table.pull(batch, ticket), gathered(shard, batch))
                gradients = random_gradients(rng, batch)
                ticket = coming.result(60)
                table.push(gradients, ADAGRAD)
                pushed(shard, gradients, ADAGRAD)
        assert_same_rows(table.pull(batches[-1], ticket), gathered(shard, batches[-1]))

    def test_a_push_after_a_prefetch_is_seen(self, table: TrainingTable, shard: Shard) -> None:
        batch = {field: np.arange(40, dtype=ROW) for field in TRAINED}
        ticket = table.prefetch(batch)
        gradients = random_gradients(np.random.default_rng(0), {field: rows[:20] for field, rows in batch.items()})
        table.push(gradients, ADAGRAD)
        pushed(shard, gradients, ADAGRAD)
        assert_same_rows(table.pull(batch, ticket), gathered(shard, batch))

    @pytest.mark.parametrize("is_reset", [False, True])
    def test_a_write_after_a_prefetch_is_seen(self, table: TrainingTable, shard: Shard, is_reset: bool) -> None:
        batch = {field: np.arange(40, dtype=ROW) for field in TRAINED}
        ticket = table.prefetch(batch)
        values = random_vectors(np.random.default_rng(0), 20)
        table.write(Field.KNOWLEDGE, rows_of(*range(30, 50)), values, is_reset)
        shard.write(Field.KNOWLEDGE, rows_of(*range(30, 50)), values)
        assert_same_rows(table.pull(batch, ticket), gathered(shard, batch))

    def test_a_ticket_that_is_never_used_does_no_harm(self, table: TrainingTable, shard: Shard) -> None:
        rng = np.random.default_rng(0)
        batch = {field: np.arange(40, dtype=ROW) for field in TRAINED}
        table.prefetch({field: np.arange(20, 60, dtype=ROW) for field in TRAINED})
        assert_same_rows(table.pull(batch), gathered(shard, batch))
        gradients = random_gradients(rng, batch)
        table.push(gradients, SGD)
        pushed(shard, gradients, SGD)
        table.prefetch(batch)
        assert_same_rows(table.pull(EVERYTHING), gathered(shard, EVERYTHING))

    @pytest.mark.parametrize("seed", range(6))
    def test_any_sequence_of_calls_gives_the_rows_of_one_shard(
        self, table: TrainingTable, shard: Shard, seed: int
    ) -> None:
        """The next batch is prefetched before this one is pulled, before its push, after it, or not at all; pulls
        without a push, writes and unused tickets are in between."""
        rng = np.random.default_rng(seed)
        batches = overlapping_batches(rng, 25)
        tickets: dict[int, int] = {}
        for number, (batch, following) in enumerate(itertools.pairwise(batches)):
            when = rng.choice(["ahead", "before", "after", "never"])
            if when == "ahead":
                if number not in tickets:
                    tickets[number] = table.prefetch(batch)
                tickets[number + 1] = table.prefetch(following)
            assert_same_rows(table.pull(batch, tickets.get(number)), gathered(shard, batch))
            if when == "before":
                tickets[number + 1] = table.prefetch(following)
            if rng.random() < 0.15:
                table.prefetch(random_batch(rng))
            if rng.random() < 0.85:
                gradients = some_gradients(rng, batch)
                optimizer = SGD if rng.random() < 0.3 else ADAGRAD
                table.push(gradients, optimizer)
                pushed(shard, gradients, optimizer)
            if when == "after":
                tickets[number + 1] = table.prefetch(following)
            if rng.random() < 0.3:
                rows = random_rows(rng)
                values = random_vectors(rng, rows.shape[0])
                table.write(Field.JOINT, rows, values)
                shard.write(Field.JOINT, rows, values)
            if rng.random() < 0.1:
                aside = {Field.JOINT: random_rows(rng), Field.KNOWLEDGE: random_rows(rng)}
                assert_same_rows(table.pull(aside), gathered(shard, aside))
        assert_same_rows(table.pull(EVERYTHING), gathered(shard, EVERYTHING))

    # Push

    def test_sgd_subtracts_the_gradient_times_the_rate(self, table: TrainingTable) -> None:
        rows, whole = rows_of(9, 0, 149), START.whole()
        gradients = random_vectors(np.random.default_rng(0), 3)
        for _ in range(2):
            table.push({Field.KNOWLEDGE: (rows, gradients)}, SGD)
        whole[Field.KNOWLEDGE][rows] -= 2 * np.float32(SGD.rate) * gradients
        self._assert_close(table, whole)

    def test_adagrad_divides_by_the_root_of_accumulated_mean_squares(self, table: TrainingTable) -> None:
        rows, whole = rows_of(9, 0, 149), START.whole()
        squares = np.zeros(3)
        rng = np.random.default_rng(0)
        for _ in range(3):
            gradients = random_vectors(rng, 3)
            table.push({Field.CONTEXT: (rows, gradients)}, ADAGRAD)
            squares += (gradients.astype(np.float64) ** 2).mean(1)
            step = ADAGRAD.rate / (np.sqrt(squares) + EPSILON)
            whole[Field.CONTEXT][rows] -= (step[:, None] * gradients).astype(np.float32)
        self._assert_close(table, whole)

    @staticmethod
    def _assert_close(table: TrainingTable, expected: Rows) -> None:
        found = table.pull(EVERYTHING)
        for field in Field:
            np.testing.assert_allclose(found[field], expected[field], rtol=1e-5, atol=1e-6, err_msg=field)

    def test_a_push_of_nothing_moves_nothing(self, table: TrainingTable) -> None:
        table.push({}, ADAGRAD)
        table.push({Field.KNOWLEDGE: (rows_of(), np.empty((0, DIM), np.float32))}, ADAGRAD)
        assert_same_rows(table.pull(EVERYTHING), START.whole())

    # Write and reset

    def test_a_write_sets_rows_and_no_others(self, table: TrainingTable) -> None:
        rows, values = rows_of(80, 2, 149), random_vectors(np.random.default_rng(0), 3)
        table.write(Field.JOINT, rows, values)
        whole = START.whole()
        whole[Field.JOINT][rows] = values
        assert_same_rows(table.pull(EVERYTHING), whole)

    def test_a_write_of_no_rows(self, table: TrainingTable) -> None:
        table.write(Field.JOINT, rows_of(), np.empty((0, DIM), np.float32))
        table.write(Field.CONTEXT, rows_of(), np.empty((0, DIM), np.float32), is_reset=True)
        assert_same_rows(table.pull(EVERYTHING), START.whole())

    @pytest.mark.parametrize("forgets", [True, False])
    def test_only_a_reset_forgets_the_optimizer_state(self, table: TrainingTable, shard: Shard, forgets: bool) -> None:
        rows = rows_of(80, 2, 149)
        rng = np.random.default_rng(0)
        gradients = random_gradients(rng, {field: rows for field in TRAINED})
        values = random_vectors(rng, 3)
        table.push(gradients, ADAGRAD)
        pushed(shard, gradients, ADAGRAD)
        for field in TRAINED:
            table.write(field, rows, values, forgets)
            shard.write(field, rows, values, forgets)
        table.push(gradients, ADAGRAD)
        pushed(shard, gradients, ADAGRAD)
        found = table.pull(EVERYTHING)
        assert_same_rows(found, gathered(shard, EVERYTHING))
        # After a reset the step is that of a first one: all of the rate, whatever the gradient's size.
        moved = np.sqrt(((found[Field.CONTEXT][rows] - values).astype(np.float64) ** 2).mean(1))
        assert (np.abs(moved - ADAGRAD.rate) < 1e-5).all() == forgets

    # Checkpoints

    def test_a_checkpoint_brings_rows_and_optimizer_state_back(self, table: TrainingTable, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        steps = [random_gradients(rng, random_batch(rng)) for _ in range(3)]
        for gradients in steps[:2]:
            table.push(gradients, ADAGRAD)
        table.save_checkpoint(tmp_path)
        table.push(steps[2], ADAGRAD)
        expected = table.pull(EVERYTHING)
        table.push(random_gradients(rng, random_batch(rng)), SGD)
        table.load_checkpoint(tmp_path)
        table.push(steps[2], ADAGRAD)
        assert_same_rows(table.pull(EVERYTHING), expected)

    def test_a_checkpoint_suits_another_table_of_the_same_size(self, table: TrainingTable, tmp_path: Path) -> None:
        gradients = random_gradients(np.random.default_rng(0), {field: EVERY_ROW for field in TRAINED})
        table.push(gradients, ADAGRAD)
        table.save_checkpoint(tmp_path)
        expected = table.pull({field: EVERY_ROW for field in TRAINED})
        other = self.make_table(START._replace(seed=(4, 0)))
        other.load_checkpoint(tmp_path)
        assert_same_rows(other.pull({field: EVERY_ROW for field in TRAINED}), expected)
        other.close()

    def test_a_checkpoint_that_is_not_there_is_named(self, table: TrainingTable, tmp_path: Path) -> None:
        with pytest.raises(DkgeError, match=r"knowledge\.npy: No such file"):
            table.load_checkpoint(tmp_path)

    # The store

    def test_saved_to_a_store_and_opened_again(self, table: TrainingTable, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        table.push(random_gradients(rng, random_batch(rng)), ADAGRAD)
        table.write(Field.JOINT, EVERY_ROW, random_vectors(rng, ROWS))
        expected = table.pull(EVERYTHING)
        storage = open_storage(str(tmp_path))
        with storage.staging() as staging:
            entries = table.save(staging, BLOCK)
            written = staging.written
            assert written > len(Field) * ROWS * DIM * 4
            for field in Field:
                assert entries[field] == save_table(staging, expected[field], BLOCK)
            assert staging.written == written, "the very same parts"
        assert entries.keys() == {field.value for field in Field}
        again = self.open_table(storage, {field: entries[field] for field in Field}, ROWS)
        assert_same_rows(again.pull(EVERYTHING), expected)
        again.close()

    def test_opened_with_room_for_more_rows(self, tmp_path: Path) -> None:
        storage = open_storage(str(tmp_path))
        fewer = {field: values[:133] for field, values in START.whole().items()}
        with storage.staging() as staging:
            entries = {field: save_table(staging, values, BLOCK) for field, values in fewer.items()}
        table = self.open_table(storage, entries, ROWS)
        assert (table.rows, table.dim) == (ROWS, DIM)
        found = table.pull(EVERYTHING)
        for field in Field:
            assert found[field][:133].tobytes() == fewer[field].tobytes()
            assert not found[field][133:].any()
        table.push({Field.KNOWLEDGE: (rows_of(149), np.ones((1, DIM), np.float32))}, SGD)
        assert table.pull({Field.KNOWLEDGE: rows_of(149)})[Field.KNOWLEDGE].tolist() == [[-np.float32(SGD.rate)] * DIM]
        table.close()

    def test_opened_with_joint_vectors_alone(self, tmp_path: Path) -> None:
        storage = open_storage(str(tmp_path))
        values = whole_numbers(np.random.default_rng(0), ROWS)
        with storage.staging() as staging:
            entries = {Field.JOINT: save_table(staging, values, BLOCK)}
        table = self.open_table(storage, entries, ROWS)
        assert (table.rows, table.dim) == (ROWS, DIM)
        found = table.index.nearest(values[:1], EVERY_ROW, 1)
        assert found.distances.tolist() == [[0]]
        assert_same_rows(table.pull({Field.JOINT: EVERY_ROW}), {Field.JOINT: values})
        table.close()

    def test_deltas_hold_the_rows_that_were_asked_for(self, table: TrainingTable, tmp_path: Path) -> None:
        table.push(random_gradients(np.random.default_rng(0), {field: EVERY_ROW for field in TRAINED}), ADAGRAD)
        values = table.pull(EVERYTHING)
        storage = open_storage(str(tmp_path))
        rows = {Field.KNOWLEDGE: rows_of(1, 9, 17, 149), Field.CONTEXT: rows_of(), Field.JOINT: rows_of(64)}
        with storage.staging() as staging:
            base = save_table(staging, np.zeros((ROWS, DIM), np.float32), BLOCK)
            before = staging.written
            deltas = table.save_deltas(staging, rows)
            assert staging.written > before
        assert deltas.keys() == {"knowledge", "joint"}
        for field in (Field.KNOWLEDGE, Field.JOINT):
            parts = deltas[field]
            assert sum(part.rows for part in parts) == len(rows[field])
            expected = np.zeros((ROWS, DIM), np.float32)
            expected[rows[field]] = values[field][rows[field]]
            entry = base.model_copy(update={"deltas": parts})
            assert load_table(storage, entry).tobytes() == expected.tobytes()
            again = self.open_table(storage, {field: entry}, ROWS)
            assert_same_rows(again.pull({field: EVERY_ROW}), {field: expected})
            again.close()

    # Statistics and the end

    def test_stats_count_calls_and_rows(self, table: TrainingTable) -> None:
        assert all(shard[name] == 0 for shard in table.stats() for name in COUNTED)
        table.pull({Field.KNOWLEDGE: rows_of(1, 2, 3), Field.CONTEXT: rows_of(4)})
        table.push({Field.KNOWLEDGE: (rows_of(1, 2), np.ones((2, DIM), np.float32))}, SGD)
        table.write(Field.JOINT, rows_of(5, 6, 7), np.ones((3, DIM), np.float32))
        table.write(Field.CONTEXT, rows_of(0), np.ones((1, DIM), np.float32), is_reset=True)
        stats = table.stats()
        total = {name: sum(shard[name] for shard in stats) for name in COUNTED}
        assert (total["rows_pulled"], total["rows_pushed"]) == (4, 2 + 3 + 1)
        # All of these rows are in the first block, hence in one shard.
        assert (total["pull_calls"], total["push_calls"], total["write_calls"]) == (1, 1, 2)

    def test_stats_tell_what_is_held(self, table: TrainingTable) -> None:
        stats = table.stats()
        assert sum(shard["rows"] for shard in stats) == ROWS
        assert sum(shard["bytes_held"] for shard in stats) == ROWS * 4 * (len(Field) * DIM + len(TRAINED))

    def test_shards_that_are_not_written_to_count_no_calls(self, table: TrainingTable) -> None:
        table.push({Field.KNOWLEDGE: (rows_of(), np.empty((0, DIM), np.float32))}, SGD)
        table.write(Field.JOINT, rows_of(), np.empty((0, DIM), np.float32))
        assert all(shard[name] == 0 for shard in table.stats() for name in ("push_calls", "write_calls"))

    def test_it_closes_with_a_pull_under_way(self) -> None:
        table = self.make_table(START)
        table.pull({Field.KNOWLEDGE: rows_of(1)})
        table.prefetch(EVERYTHING)
        table.push({Field.KNOWLEDGE: (rows_of(1), np.ones((1, DIM), np.float32))}, SGD)
        table.close()
