"""Where rows come from: checks of what was given, rows as tasks; nothing is computed here."""
