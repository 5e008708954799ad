"""Reports: from runs' folders to one page with tables and figures.

``build`` turns runs into a document (sections of text, tables and figures); ``html`` and
``markdown`` render it. Everything is read from the runs' files.
"""
