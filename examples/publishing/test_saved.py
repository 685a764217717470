"""What a trainer saved is what its config says: five lines for your own tests."""

import llamath


def test_saved_checkpoint(checkpoint: str) -> None:
    """Names, shapes, dtypes and values are those of the config."""
    report = llamath.verify(checkpoint, full=True)
    assert report.ok, report.summary
