"""The cluster: builders of task graphs. They build, never compute."""
