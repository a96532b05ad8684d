"""Contract tests for placers, for third parties too."""
