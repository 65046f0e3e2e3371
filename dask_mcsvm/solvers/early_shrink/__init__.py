"""Early shrinking: classes one by one, most rows at rest."""
