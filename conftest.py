"""Names that the examples in docstrings may use without importing them."""

import pytest


@pytest.fixture(autouse=True)
def example_names(doctest_namespace: dict) -> None:
    import torch

    import asterism

    torch.manual_seed(0)
    doctest_namespace.update(
        torch=torch, asterism=asterism, **{name: getattr(asterism, name) for name in ("ClassMeans", "PrototypeHead")}
    )
