"""The testbed: several hosts on one machine, each with a network, a container engine and an ssh server of its own.

    layout.py    names, addresses, paths and cores of every node, and the texts of its files; pure
    network.py   namespaces, bridges, veth pairs and what holds them to a rate
    groups.py    the control group that keeps a node's containers on its cores
    nodes.py     a node's engine and ssh server: start, stop, kill
    teardown.py  all that a rig leaves on the machine, found by name, and its removal
    rig.py       up, down and the faults that tests ask for
    lease.py     a rig that goes down with the process that wanted it, however that ends, and the reaper that sees to this
    tools.py     the programs that it needs, and the packages that have them
    cli.py       `make rig`

Nothing is kept on disk about a rig: every name follows from its number, so that whatever a killed process left can be found and removed.
"""
