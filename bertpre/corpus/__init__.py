"""From files to documents of sentences, and what was found in them.

inputs names the files; files and decoding give lines; delimited, parquet and tables give rows;
sentences and duplicates change what documents puts together; report counts.
"""
