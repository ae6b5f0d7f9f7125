#!/usr/bin/env python3
"""Checks a Perfetto trace against Perfetto's own schema, and prints what is in it as JSON.

    check_perfetto.py TRACE

Needs the Python packages perfetto and protobuf. Ends with an error if a field is unknown, an interned id is not
resolved, a slice ends that did not begin on its track or never ends, a track or its parent is not described before it
is used, or an arrow has but one end. Prints {"slices": [...], "flows": [...], "processes": [...], "threads": [...]}.
"""

import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

CLEARED, NEEDED = 1, 2
BOOTTIME = 6
INTERNED = {
    "event_categories": "name",
    "event_names": "name",
    "debug_annotation_names": "name",
    "debug_annotation_string_values": "str",
}


def check(condition, *what):
    if not condition:
        sys.exit("wrong: " + " ".join(map(str, what)))


def check_known(message):
    """No field is unknown, at any depth."""
    check(len(UnknownFieldSet(message)) == 0, "unknown fields in", type(message).__name__, message)
    for field, value in message.ListFields():
        if field.message_type:
            for inner in value if field.is_repeated else [value]:
                check_known(inner)


class Sequence:
    def __init__(self):
        self.interned, self.clock = None, None

    def apply(self, packet):
        if packet.sequence_flags & CLEARED:
            self.interned = {kind: {} for kind in INTERNED}
            self.clock = packet.trace_packet_defaults.timestamp_clock_id
        if packet.sequence_flags & NEEDED:
            check(self.interned is not None, "a packet needs what was not interned", packet)
        for kind, text in INTERNED.items():
            for entry in getattr(packet.interned_data, kind):
                check(entry.iid not in self.interned[kind], "interned twice", entry)
                value = getattr(entry, text)
                self.interned[kind][entry.iid] = value.decode() if isinstance(value, bytes) else value

    def text(self, kind, iid):
        check(iid in self.interned[kind], kind, iid, "is not interned")
        return self.interned[kind][iid]


def arguments(sequence, event):
    found = {}
    for note in event.debug_annotations:
        value = getattr(note, note.WhichOneof("value"))
        if note.HasField("string_value_iid"):
            value = sequence.text("debug_annotation_string_values", value)
        found[sequence.text("debug_annotation_names", note.name_iid)] = value
    return found


def main():
    trace = schema.Trace()
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    check(trace.ParseFromString(data) == len(data), "not all of it is a trace")
    check_known(trace)
    sequences, tracks, processes, threads, events = {}, {}, [], [], []
    for packet in trace.packet:
        check(packet.trusted_packet_sequence_id > 0, "a packet without a sequence", packet)
        sequence = sequences.setdefault(packet.trusted_packet_sequence_id, Sequence())
        sequence.apply(packet)
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            check(not track.parent_uuid or track.parent_uuid in tracks, "an unknown parent", track)
            if track.HasField("process") and track.uuid not in tracks:
                processes.append([track.process.pid, track.process.process_name, list(track.process.cmdline)])
            if track.HasField("thread") and track.uuid not in tracks:
                threads.append([track.thread.pid, track.thread.tid, track.thread.thread_name])
            tracks[track.uuid] = track
        if packet.HasField("track_event"):
            check(sequence.clock == BOOTTIME, "an event by another clock", packet)
            event = packet.track_event
            check(event.track_uuid in tracks, "an event on an unknown track", packet)
            name = event.HasField("name_iid") and sequence.text("event_names", event.name_iid)
            categories = [sequence.text("event_categories", iid) for iid in event.category_iids]
            events.append((packet.timestamp, event, name, categories, arguments(sequence, event)))

    def path(uuid):
        track = tracks[uuid]
        name = track.thread.thread_name or track.name
        return (path(track.parent_uuid) if track.parent_uuid else []) + [name]

    slices, stacks, flows, closed = [], {}, {}, []
    # As Perfetto does: by time, and those of one time as they were written.
    for at, event, name, categories, notes in sorted(events, key=lambda event: event[0]):
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == schema.TrackEvent.TYPE_SLICE_END:
            check(stack, "an end without a begin", at, event)
            stack.pop()["dur"] = at
            continue
        check(name and categories, "an event without a name or a category", event)
        slice = {"track": path(event.track_uuid), "name": name, "category": categories[0], "ts": at, "dur": at}
        slice |= {"depth": len(stack), "args": notes}
        for id in [*event.flow_ids, *event.terminating_flow_ids]:
            flows.setdefault(id, []).append(len(slices))
            check(id not in closed, "an arrow goes on behind its end", event)
        closed.extend(event.terminating_flow_ids)
        slices.append(slice)
        if event.type == schema.TrackEvent.TYPE_SLICE_BEGIN:
            stack.append(slice)
    check(not any(stacks.values()), "slices without an end", stacks)
    check(sorted(flows) == sorted(closed), "arrows without an end")
    for slice in slices:
        slice["dur"] -= slice["ts"]
    pairs = []
    for points in flows.values():
        check(len(points) >= 2, "an arrow with one end", slices[points[0]])
        for one, other in zip(points, points[1:]):
            one, other = slices[one], slices[other]
            pairs.append([one["track"][-1], one["name"], other["track"][-1], other["name"]])
    print(json.dumps({"slices": slices, "flows": pairs, "processes": processes, "threads": threads}))


main()
