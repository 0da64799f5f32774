"""Small sound inputs of every kind, to be made malformed."""

from __future__ import annotations

from tests.graphs import lines

TSV = lines([("a", "r", "b"), ("b", "s", "é"), ("c c", "r", "a"), ('"q"', "s", "NA")] * 3).encode()
CHANGES = b"+\ta\tr\tb\n-\tb\ts\tc\n+\tx\ty\tz\n" * 3
NTRIPLES = b'<http://a> <http://p> <http://b> .\n_:x <http://p> "text \\u00e9"@en .\n<a:b> <p:q> "1"^^<x:int> .\n' * 2
NAMED = b"""<x:a> <x:p> <x:b> .
<x:a> <http://www.w3.org/2000/01/rdf-schema#label> "The \\"A\\" \\u00e9"@en .
<x:p> <http://schema.org/name> "is p of"@en-GB .
<x:b> <http://www.w3.org/2004/02/skos/core#prefLabel> "B\\\\n" .
"""
LABELS = b'tt1\tThe Matrix\nP161\tcast member\n<x>\t\xc3\xa9 "x"\n' * 3
CSV = b'h,r,t\r\na,r,b\r\n"b,c",s,"two\nlines"\r\n"say ""hi""",r,NA\r\n\r\nc,"r","\xc3\xa9"\r\n' * 2
JSON_LINES = b'{"head": "a", "relation": "r", "tail": "b", "x": [1]}\n["b", "s", 7]\n\n["c", "r", "\\u00e9"]\n' * 2
TURTLE = b'@prefix x: <http://x/> .\nx:a x:p x:b , "text"@en ; x:q [ x:r 1 ] .\n_:n x:p ( x:a x:b ) .\n' * 2
TRIG = b"@prefix x: <http://x/> .\nx:g { x:a x:p x:b . }\nGRAPH _:g { x:a x:p [] }\nx:a x:p x:c .\n" * 2
NQUADS = NTRIPLES.replace(b" .\n", b" <g:1> .\n", 2)
RDF_XML = (
    b'<?xml version="1.0"?>\n<!DOCTYPE rdf:RDF [ <!ENTITY y "http://y/" > ]>\n<rdf:RDF xmlns:x="http://x/" '
    b'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">\n<rdf:Description rdf:about="&y;a"><x:p rdf:resource='
    b'"http://x/b"/><x:q>text</x:q><x:s rdf:parseType="Resource"><x:t>v</x:t></x:s></rdf:Description>\n</rdf:RDF>\n'
)
PACKAGES = (
    b"Package: a\nVersion: 1\nDepends: b (>= 1), c | d\nSection: libs\nTag: x::y,\n z::w\n\n"
    b"Package: b\nPriority: low\n\n"
)
OPENKE = {
    "entity2id.txt": b"4\na\t0\nb\t1\nc\t2\nd\t3\n",
    "relation2id.txt": b"2\nr\t0\ns\t1\n",
    "train2id.txt": b"3\n0 1 0\n1 2 1\n3 0 0\n",
    "valid2id.txt": b"1\n0 2 1\n",
}
