"""`dlscale overhead`: what the suite itself costs, against the same training without it, in alternating rounds.

Each side of a round is a command: `dlscale bench` as a user types it, the same without samplers, by ENGINE=host beside a container where
that is asked for, and a bare loop with nothing of the suite where one does the same. What only the clock around the commands knows is
kept raw (`raw.Overhead`); every figure is made from that and from the records of the runs (`figures`), now and by every later `dlscale report`.
"""
