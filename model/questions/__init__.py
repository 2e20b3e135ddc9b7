"""What the owner of a dump asks next, one question a file: functions over arrays and texts."""
