"""The Grafana dashboards of semel, written by a program: `python -m dashboards` puts them beside this file.

queries.py     the metrics with their labels, and how they are asked for: variables are in every selector
panels.py      what a panel looks like: a number, lines, a table
frame.py       what every dashboard has: variables, links, rows on a grid of 24 columns
overview.py    what semel does, what it is worth, whether somebody is needed; its rows are also in
               held.py, money.py, upstreams.py, policies.py and shadow.py
effects.py     calls with effects: what was prevented, held, lost, refused; doubt.py has two of its rows
store.py       where the record is kept: how fast, how safe, and with store_size.py how large
drawing/       the same without Grafana, from a Prometheus's data: the pictures in the documents
"""
