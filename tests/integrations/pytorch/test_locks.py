"""Python's lock: who waits for a rank, a thread or a communicator's lock must not hold it. A test that
hangs ends its rank after TEST_HANG seconds, with what all threads do."""

import datetime
import faulthandler
import os
import sys
import threading
import time
import unittest

import torch
import torch.distributed as dist
from alnico_torch import _C
from common import Case, main

CPU = torch.device("cpu")
MINUTE = datetime.timedelta(seconds=60)


class Locks(Case):
    def setUp(self):
        faulthandler.dump_traceback_later(int(os.environ.get("TEST_HANG", 120)), exit=True)
        self.store = dist.PrefixStore(self.id(), dist.distributed_c10d._get_default_store())

    def tearDown(self):
        faulthandler.cancel_dump_traceback_later()

    def backend(self):
        """A group's backend that nothing but the caller keeps."""
        ranks = list(range(self.size))
        return _C.create(self.store, self.rank, self.size, MINUTE, self.id(), ranks)

    def all_reduce(self, backend):
        """Rank 0's work does not end before it sets "begun": its callbacks run on another thread."""
        if self.rank:
            self.store.wait(["begun"])
        return backend.allreduce([torch.ones(4)])

    def test_ask_while_tensors_are_freed(self):
        """The inputs are the works' alone: the watcher frees them."""
        dist.all_reduce(torch.ones(4), async_op=True).get_future().wait()
        for _ in range(500):
            out = torch.empty(self.size * 100)
            work = dist.all_gather_into_tensor(out, torch.ones(100), async_op=True)
            while not work.is_completed():
                pass

    def test_ask_while_another_thread_splits(self):
        for how in ("is_completed", "get_future", "get_future_result"):
            group = dist.new_group()
            work = dist.all_reduce(torch.ones(4), group=group, async_op=True)
            work.wait()
            split = threading.Thread(target=group.split_group, args=(list(range(self.size)),))
            if self.rank:
                self.store.wait([how])
                split.start()
            else:
                split.start()
                time.sleep(0.3)
                threading.Timer(0.3, self.store.set, (how, "")).start()
                getattr(work, how)()
            split.join()
            dist.destroy_process_group(group)

    def test_drop_while_a_callback_runs(self):
        backend, begun, dropping, ended = self.backend(), threading.Event(), threading.Event(), []

        def callback(future):
            begun.set()
            dropping.wait()
            time.sleep(0.2)
            ended.append(True)

        work = self.all_reduce(backend)
        if self.rank == 0:
            work.get_future().then(callback)
            self.store.set("begun", "")
            begun.wait()
        work.wait()
        dist.barrier(group=self.gloo)
        dropping.set()
        del backend
        self.assertEqual(len(ended), 1 if self.rank == 0 else 0)

    def test_callback_ends_its_group(self):
        backend = self.backend()

        def callback(future):
            backend.abort()
            backend.shutdown()
            return threading.current_thread() is threading.main_thread()

        work = self.all_reduce(backend)
        if self.rank == 0:
            future = work.get_future().then(callback)
            self.store.set("begun", "")
            self.assertIs(future.wait(), False)
        else:
            try:
                work.wait()
            except dist.DistBackendError:  # the first rank has aborted
                pass

    def test_ranks_that_are_threads(self):
        store, sums = dist.HashStore(), [None, None]

        def run(rank):
            backend = _C.create(store, rank, 2, MINUTE, "threads", [0, 1])
            x = torch.full((4,), rank + 1)
            backend.allreduce([x]).wait()
            sums[rank] = x.tolist()
            backend.shutdown()

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sums, [[3] * 4] * 2)

    def test_works_share_the_hook(self):
        """References to Python's function are counted with the lock only."""
        group, seen = dist.new_group(), []

        def hook(info):
            seen.append(info.seq)

        group._register_on_completion_hook(hook)
        references = sys.getrefcount(hook)
        if self.rank:
            self.store.wait(["counted"])
        works = [dist.all_reduce(torch.ones(4), group=group, async_op=True) for _ in range(20)]
        if self.rank == 0:
            self.assertEqual(sys.getrefcount(hook), references)
            self.store.set("counted", "")
        for work in works:
            work.wait()
        group._wait_for_pending_works()
        while len(seen) < 20:
            time.sleep(0.001)
        dist.destroy_process_group(group)


if __name__ == "__main__":
    main()
