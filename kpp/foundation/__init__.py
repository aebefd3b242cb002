"""What every part uses: checks of arguments, words for messages, imports on first use."""
