"""The dashboards drawn without Grafana, from a Prometheus's data, for the pictures in the documents.

reading.py    a dashboard's file, as far as it is drawn
answers.py    the queries of its panels, answered by a Prometheus over one window of time
units.py      numbers as Grafana writes them
sheet.py      what is drawn on: pixels, text that is cut where its room ends, colours
numbers.py, lines.py with legends.py, tables.py      one kind of panel each
page.py       a whole dashboard
"""
