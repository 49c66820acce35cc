"""Models from elsewhere and to elsewhere: one file a format, each a table that reads both ways."""
