#!/usr/bin/env python3
"""Writes requests.json beside itself: requests as fastavro (pip install fastavro) encodes them under several writer
schemas, and what the worker must read from each, as its own JSON.  Run by hand; the tests read the file."""
import copy, io, json, os
import fastavro

here = os.path.dirname(os.path.abspath(__file__))
ours = json.load(open(os.path.join(here, "../../../schemas/translation_request.avsc")))


def fingerprint(schema):
    return fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(schema), "CRC-64-AVRO")


def encode(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(schema)), value)
    return out.getvalue()


def record(name, *fields):
    return {"type": "record", "name": name, "fields": [dict(zip(("name", "type"), f)) for f in fields]}


cases = []


def case(name, schema, value, expect, data=None):
    text = json.dumps(schema, ensure_ascii=False)
    cases.append({"name": name, "schema": text, "fingerprint": fingerprint(schema),
                  "hex": (data if data is not None else encode(schema, value)).hex(),
                  "expect": json.dumps(expect, ensure_ascii=False, separators=(",", ":"))})


S = "string"
base = {"job_id": "j-1", "text": "Good morning.", "target_lang": "de"}
plain = dict(base, format="PLAIN", priority=0)
full = dict(base, text="Grüße, 世界 🌍", source_lang="en", context="A letter.",
            glossary=[{"source": "world", "target": "Welt"}, {"source": "sea", "target": "Meer"}], format="TAGGED",
            options={"max_output_tokens": 100, "temperature": 0.7, "top_p": 0.6, "top_k": 20,
                     "repetition_penalty": 1.05, "seed": -(1 << 62)},
            priority=-3, deadline=1764547200123, metadata={"tenant": "a", "trace": "ü"})
case("our schema, every field", ours, full, full)
case("our schema, the required fields alone", ours, base, plain)
case("an older writer that has three fields",
     record("Old", ("job_id", S), ("text", S), ("target_lang", S)), base, plain)
extra = record("org.example.Job", ("v", {"type": "map", "values": ["null", "long"]}), ("target_lang", S),
               ("blob", {"type": "fixed", "name": "F", "size": 5}), ("text", S),
               ("more", record("More", ("list", {"type": "array", "items": {"type": "array", "items": "float"}}),
                               ("flag", "boolean"), ("again", "F"), ("nothing", "null"))), ("job_id", S))
case("other order, other names, further fields", extra,
     dict(base, v={"a": None, "b": 1 << 40}, blob=b"12345",
          more={"list": [[1.5], [], [2.5, 3.5]], "flag": True, "again": b"abcde", "nothing": None}), plain)
case("enum symbols in another order, with one more",
     record("R", ("job_id", S), ("text", S), ("target_lang", S),
            ("format", {"type": "enum", "name": "Fmt", "symbols": ["TAGGED", "HTML", "PLAIN"]})),
     dict(base, format="TAGGED"), dict(base, format="TAGGED", priority=0))
back = record("R", ("job_id", ["null", S]), ("text", [S, "null"]), ("target_lang", ["null", S]),
              ("source_lang", [S, "null"]), ("context", S),
              ("options", [record("O", ("temperature", ["double", "null"]), ("top_k", "int"), ("seed", ["int", "null"])),
                           "null"]),
              ("metadata", ["null", {"type": "map", "values": ["null", S]}]))
case("unions the other way round, and where we have none", back,
     dict(base, source_lang="fr", context="c", options={"temperature": 0.5, "top_k": 3, "seed": None},
          metadata={"k": "v"}),
     dict(base, source_lang="fr", context="c", format="PLAIN", options={"temperature": 0.5, "top_k": 3}, priority=0,
          metadata={"k": "v"}))
case("unions the other way round, null", back,
     dict(base, source_lang=None, context="", options=None, metadata=None), plain)
case("promotions: bytes, int, long, float; a deadline in microseconds",
     record("R", ("job_id", "bytes"), ("text", "bytes"),
            ("target_lang", {"type": "enum", "name": "L", "symbols": ["en", "de"]}), ("format", S),
            ("priority", "long"), ("deadline", {"type": "long", "logicalType": "timestamp-micros"}),
            ("options", record("O", ("temperature", "int"), ("top_p", "float"), ("seed", "int"),
                               ("max_output_tokens", "long"), ("top_k", "double")))),
     {"job_id": b"j-1", "text": b"Good morning.", "target_lang": "de", "format": "TAGGED", "priority": 7,
      "deadline": 1764547200123999, "options": {"temperature": 1, "top_p": 0.5, "seed": 9, "max_output_tokens": 12,
                                                "top_k": 4.0}},
     dict(base, format="TAGGED", options={"max_output_tokens": 12, "temperature": 1.0, "top_p": 0.5, "top_k": 4,
                                          "seed": 9}, priority=7, deadline=1764547200123))

terms = record("R", ("job_id", S), ("text", S), ("target_lang", S),
               ("glossary", {"type": "array", "items": record("T", ("target", S), ("source", S))}),
               ("metadata", {"type": "map", "values": S}))


def string(s):
    return bytes([2 * len(s)]) + s.encode()


block = string("Y") + string("x")
case("blocks with negative counts and sizes, several of them", terms, None,
     dict(base, glossary=[{"source": "x", "target": "Y"}] * 4, format="PLAIN", priority=0,
          metadata={"a": "1", "b": "2"}),
     string("j-1") + string("Good morning.") + string("de")
     + bytes([3, 2 * 2 * len(block)]) + block * 2 + bytes([2]) + block + bytes([1, 2 * len(block)]) + block + b"\0"
     + bytes([2]) + string("a") + string("1") + bytes([1, 2 * 4]) + string("b") + string("2") + b"\0")

json.dump(cases, open(os.path.join(here, "requests.json"), "w"), ensure_ascii=False, indent=1)
open(os.path.join(here, "requests.json"), "a").write("\n")
print(len(cases), "cases; schemas:", {f: fingerprint(json.load(open(os.path.join(here, "../../../schemas", f))))
                                      for f in sorted(os.listdir(os.path.join(here, "../../../schemas")))})
