"""Graphical criteria for sets of variables: adjustment, front door, instruments, the rules of do-calculus."""
