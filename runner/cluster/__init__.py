"""Machines: what this one and other hosts have, whether they can run a job, and how images and programs get there."""
