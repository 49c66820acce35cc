"""What every room uses: errors, files, texts, options, tables of names, the machine."""
