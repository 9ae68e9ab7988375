"""The living model: one folder that learns delivery after delivery, with versions."""
