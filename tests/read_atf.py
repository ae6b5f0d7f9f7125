#!/usr/bin/env python3
"""Reads a session directory in the public trace format ATF v2 and checks it.

    read_atf.py [--functions] DIRECTORY

Written from the description of the format alone, to show that a trace opens with a reader that knows nothing of the
programs that wrote it. Prints how many events of each kind every thread has, and with --functions how often every
function was called, returned and was left by an exception. Ends with 1 where anything does not fit together, and says
what. What the description leaves to the writer (types of details from 16 up, other fields of the manifest) is used
where it is known and otherwise skipped.
"""

import json
import struct
import sys
import zlib
from collections import Counter
from pathlib import Path

INDEX_HEADER = struct.Struct("<4s4BIIB7sIIQQQQ")
INDEX_EVENT = struct.Struct("<QQIIII")
INDEX_FOOTER = struct.Struct("<4sIQQQQ24s")
DETAIL_HEADER = struct.Struct("<4s4BIIIQQQQQI")
DETAIL_EVENT = struct.Struct("<IHHIIQ")
DETAIL_FUNCTION = struct.Struct("<Q8QQQQHH")
DETAIL_FOOTER = struct.Struct("<4sIQQQQ24s")
KINDS = {1: "call", 2: "return", 3: "exception"}
CALL, RETURN, FIRST_OWN_TYPE = 3, 4, 16
NO_DETAIL = 0xFFFFFFFF


class Wrong(Exception):
    """Something that does not fit."""


def expect(holds, what):
    if not holds:
        raise Wrong(what)


def check_origin(magic, origin):
    endian, version, arch, system = origin
    expect((endian, version) == (1, 1), f"{magic}: endian {endian}, version {version}")
    expect(arch in (1, 2) and system in range(1, 6), f"{magic}: arch {arch}, os {system}")


def read_index(path):
    """The header's fields that others need, and the events."""
    data = path.read_bytes()
    expect(len(data) >= 64, "shorter than a header")
    (magic, *origin, flags, thread, _clock, reserved, size, count, first, footer_at, first_time, last_time) = (
        INDEX_HEADER.unpack_from(data)
    )
    expect(magic == b"ATI2" and not any(reserved), f"header {magic} {reserved}")
    check_origin("ATI2", origin)
    expect((size, first) == (32, 64), f"events of {size} bytes from {first} on")
    finished = len(data) >= 128 and data[-64:-60] == b"2ITA" and (len(data) - 128) % 32 == 0
    end = len(data) - 64 if finished else 64 + (len(data) - 64) // 32 * 32
    events = list(INDEX_EVENT.iter_unpack(data[64:end]))
    if finished:
        footer = INDEX_FOOTER.unpack_from(data, end)
        times = (events[0][0], events[-1][0]) if events else (0, 0)
        expect(footer[1] == zlib.crc32(data[64:end]), "the checksum of the events")
        expect(footer[2:6] == (len(events), *times, end - 64), f"the footer {footer[2:6]}")
        expect(not any(footer[6]), "reserved bytes of the footer")
        expect((count, footer_at) == (len(events), end), f"the header's count {count} and footer {footer_at}")
        expect((first_time, last_time) == times, "the header's times")
    for sequence, (_, _, owner, kind, _, _) in enumerate(events):
        expect(owner == thread and kind in KINDS, f"event {sequence}: thread {owner}, kind {kind}")
    return flags, thread, events, finished


def read_details(path, thread):
    """The detail events: type, sequence number in the index, time, and the function where it has one."""
    data = path.read_bytes()
    expect(len(data) >= 64, "shorter than a header")
    (magic, *origin, _flags, owner, reserved, first, count, size, first_index, last_index, more) = (
        DETAIL_HEADER.unpack_from(data)
    )
    expect(magic == b"ATD2" and not reserved and not more, f"header {magic}")
    check_origin("ATD2", origin)
    expect(owner == thread and first == 64, f"thread {owner}, events from {first} on")
    finished = len(data) >= 128 and data[-64:-60] == b"2DTA"
    end = len(data) - 64 if finished else len(data)
    details, at = [], 64
    while at + 24 <= end:
        length, kind, _flags, sequence, owner, time = DETAIL_EVENT.unpack_from(data, at)
        if not finished and at + length > end:
            break
        where = f"detail {len(details)}"
        expect(length >= 24 and at + length <= end, f"{where}: {length} bytes")
        expect(kind in (CALL, RETURN) or kind >= FIRST_OWN_TYPE, f"{where}: type {kind}")
        expect(owner == thread, f"{where}: thread {owner}")
        function = None
        if kind in (CALL, RETURN):
            function, *registers, stack, zero = DETAIL_FUNCTION.unpack_from(data, at + 24)
            expect(len(registers) == 11 and stack <= 512 and zero == 0, f"{where}: {stack} bytes of stack")
            expect(length == 24 + 100 + stack, f"{where}: {length} bytes with {stack} of stack")
        details.append((kind, sequence, time, function))
        at += length
    if finished:
        expect(at == end, "what follows the last detail")
        _, checksum, footer_count, footer_size, first_time, last_time, zeros = DETAIL_FOOTER.unpack_from(data, end)
        times = (details[0][2], details[-1][2]) if details else (0, 0)
        covered = (details[0][1], details[-1][1]) if details else (0, 0)
        expect(checksum == zlib.crc32(data[64:end]), "the checksum of the details")
        expect((footer_count, footer_size) == (len(details), end - 64) and not any(zeros), "the footer's totals")
        expect((first_time, last_time) == times, "the footer's times")
        expect((count, size) == (footer_count, footer_size), "the header's totals")
        expect((first_index, last_index) == covered, f"the header covers {first_index} to {last_index}")
    return details, finished


def check_links(events, details, finished):
    """Index event → its first detail, and every detail → its index event."""
    first_of = {}
    for position, (kind, sequence, time, function) in enumerate(details):
        first_of.setdefault(sequence, position)
        if sequence >= len(events):
            # A writer that was killed may have come further with the details.
            expect(not finished, f"detail {position} belongs to event {sequence}")
            continue
        event = events[sequence]
        expect(time == event[0], f"detail {position}: time {time}, and {event[0]} in the index")
        if function is not None:
            expect(function == event[1], f"detail {position}: function {function:#x}, and {event[1]:#x} in the index")
            expect((kind == CALL) == (event[3] == 1), f"detail {position}: type {kind} of a {KINDS[event[3]]}")
    for sequence, event in enumerate(events):
        linked = None if event[5] == NO_DETAIL else event[5]
        expect(linked == first_of.get(sequence), f"event {sequence} links to {linked}, not {first_of.get(sequence)}")


def read_thread(folder, entry):
    name = f"thread_{entry['id']}"
    detail = folder / name / "detail.atf"
    expect(detail.exists() == entry["has_detail"], f"{name}: has_detail is {entry['has_detail']}")
    try:
        flags, thread, events, finished = read_index(folder / name / "index.atf")
        # A header that was not completed need not tell.
        expect(not finished or bool(flags & 1) == entry["has_detail"], f"flags {flags:#x}")
    except Wrong as wrong:
        raise Wrong(f"{name}/index.atf: {wrong}") from None
    try:
        details, whole = read_details(detail, thread) if entry["has_detail"] else ([], True)
        check_links(events, details, finished and whole)
    except Wrong as wrong:
        raise Wrong(f"{name}/detail.atf: {wrong}") from None
    expect(entry.get("written", len(events)) == len(events), f"{name}: {len(events)} events, {entry['written']} told")
    return events, details, finished and whole


def main(arguments):
    folder = Path(arguments[-1])
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    start, end = manifest["time_start_ns"], manifest["time_end_ns"]
    expect(start <= end, f"manifest.json: it starts at {start} and ends at {end}")
    ids = [entry["id"] for entry in manifest["threads"]]
    expect(len(ids) == len(set(ids)), "manifest.json: a thread is there twice")
    there = {path.name for path in folder.glob("thread_*")}
    expect(there == {f"thread_{number}" for number in ids}, f"the folders are {sorted(there)}")
    functions = Counter()
    for entry in manifest["threads"]:
        events, details, finished = read_thread(folder, entry)
        kinds = Counter(event[3] for event in events)
        functions.update((event[1], event[3]) for event in events)
        for time in (event[0] for event in (events[:1] + events[-1:])):
            expect(start <= time <= end, f"thread_{entry['id']}: an event at {time}, outside of {start} to {end}")
        told = " ".join(f"{KINDS[kind]} {kinds[kind]}" for kind in KINDS)
        print(f"thread {entry['id']} {told} detail {len(details)}{'' if finished else ' unfinished'}")
    if "--functions" in arguments:
        names = {}
        modules = {entry["module_id"] for entry in manifest["modules"]}
        for entry in manifest["symbols"]:
            number, module = int(entry["function_id"], 16), entry["module_id"]
            expect(number >> 32 == module and module in modules | {0}, f"manifest.json: {entry} is in no module")
            names[number] = entry["name"]
        for function in sorted({function for function, _ in functions}):
            counts = " ".join(str(functions[function, kind]) for kind in KINDS)
            print(f"function {counts} {names.get(function, hex(function))}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or len(sys.argv) == 3 and sys.argv[1] != "--functions":
        sys.exit(f"usage: {sys.argv[0]} [--functions] DIRECTORY")
    try:
        main(sys.argv[1:])
    except (Wrong, OSError, KeyError, ValueError, TypeError, struct.error) as error:
        sys.exit(f"{sys.argv[-1]}: {type(error).__name__}: {error}")
