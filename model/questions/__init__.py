"""Questions of a dump's owner, one a file: functions over arrays and texts."""
