"""The testbed: several hosts on one machine, each with its own network, container engine and ssh server.

    layout.py    names, addresses, paths and cores of every node, and the texts of its files; pure
    network.py   namespaces, bridges, veth pairs and their rate limits
    groups.py    the control groups that keep a node's containers on its cores
    nodes.py     a node's engine and ssh server: start, stop, kill
    teardown.py  finds by name, and removes, everything that a rig leaves on the machine
    rig.py       up, down and the faults that tests inject
    lease.py     a rig that goes down with the process that leased it, even if that is killed, and the reaper that ensures it
    tools.py     the required programs, and their packages
    cli.py       `make rig`

A rig keeps no state on disk: every name follows from its number, so that anything left by a killed process can be found and removed.
"""
