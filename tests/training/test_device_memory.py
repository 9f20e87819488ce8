import platform
import resource

import pytest
import torch

from bertpre.training.device import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_is_used_again_without_page_faults():
    def faults_of_ten_tensors() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(10):
            torch.ones(2**22)  # 16 MiB: 4,096 pages
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    obeys = keep_freed_memory()
    faults_of_ten_tensors()

    assert obeys
    assert faults_of_ten_tensors() < 4096


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("musl", "1.2"))

    assert not keep_freed_memory()
