"""The Grafana dashboards of semel, written by a program: `python -m dashboards` puts them beside this file.

queries.py     the metrics with their labels, and how they are asked for: variables are in every selector
panels.py      what a panel looks like: a number, lines, a table
frame.py       what every dashboard has: variables, links, rows on a grid of 24 columns
overview.py    what semel does, what it is worth, whether somebody is needed
effects.py     calls with effects: what was held, lost, prevented, refused
store.py       where the record is kept: how fast, how large, how safe
"""
