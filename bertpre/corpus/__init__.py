"""From files to documents of sentences, and a report on them.

inputs finds files; files and decoding read lines; delimited, parquet, conll and tables read rows;
sentences splits and duplicates removes; documents puts it all together; report counts.
"""
