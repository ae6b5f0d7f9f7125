//! The numbers of the fields that are written, by message, as `perfetto_trace.proto` has them.

pub(super) mod trace {
    pub(in super::super) const PACKET: u32 = 1;
}

pub(super) mod packet {
    pub(in super::super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(in super::super) const TIMESTAMP: u32 = 8;
    pub(in super::super) const TRUSTED_PACKET_SEQUENCE_ID: u32 = 10;
    pub(in super::super) const TRACK_EVENT: u32 = 11;
    pub(in super::super) const INTERNED_DATA: u32 = 12;
    pub(in super::super) const SEQUENCE_FLAGS: u32 = 13;
    pub(in super::super) const TRACE_PACKET_DEFAULTS: u32 = 59;
    pub(in super::super) const TRACK_DESCRIPTOR: u32 = 60;
    pub(in super::super) const FIRST_PACKET_ON_SEQUENCE: u32 = 87;

    /// Flags of a sequence: what was interned is forgotten, and this packet needs what is interned.
    pub(in super::super) const CLEARED: u64 = 1;
    pub(in super::super) const NEEDED: u64 = 2;
}

pub(super) mod defaults {
    pub(in super::super) const TIMESTAMP_CLOCK_ID: u32 = 58;
}

pub(super) mod clock {
    pub(in super::super) const CLOCKS: u32 = 1;
    pub(in super::super) const CLOCK_ID: u32 = 1;
    pub(in super::super) const TIMESTAMP: u32 = 2;

    pub(in super::super) const REALTIME: u64 = 1;
    pub(in super::super) const BOOTTIME: u64 = 6;
}

pub(super) mod event {
    pub(in super::super) const CATEGORY_IIDS: u32 = 3;
    pub(in super::super) const DEBUG_ANNOTATIONS: u32 = 4;
    pub(in super::super) const TYPE: u32 = 9;
    pub(in super::super) const NAME_IID: u32 = 10;
    pub(in super::super) const TRACK_UUID: u32 = 11;
    pub(in super::super) const FLOW_IDS: u32 = 47;
    pub(in super::super) const TERMINATING_FLOW_IDS: u32 = 48;

    pub(in super::super) const SLICE_BEGIN: u64 = 1;
    pub(in super::super) const SLICE_END: u64 = 2;
    pub(in super::super) const INSTANT: u64 = 3;
}

pub(super) mod annotation {
    pub(in super::super) const NAME_IID: u32 = 1;
    pub(in super::super) const UINT_VALUE: u32 = 3;
    pub(in super::super) const POINTER_VALUE: u32 = 7;
    pub(in super::super) const STRING_VALUE_IID: u32 = 17;
}

pub(super) mod interned {
    pub(in super::super) const EVENT_CATEGORIES: u32 = 1;
    pub(in super::super) const EVENT_NAMES: u32 = 2;
    pub(in super::super) const DEBUG_ANNOTATION_NAMES: u32 = 3;
    pub(in super::super) const DEBUG_ANNOTATION_STRING_VALUES: u32 = 29;

    /// Of every entry.
    pub(in super::super) const IID: u32 = 1;
    pub(in super::super) const NAME: u32 = 2;
}

pub(super) mod track {
    pub(in super::super) const UUID: u32 = 1;
    pub(in super::super) const NAME: u32 = 2;
    pub(in super::super) const PROCESS: u32 = 3;
    pub(in super::super) const THREAD: u32 = 4;
    pub(in super::super) const PARENT_UUID: u32 = 5;
}

pub(super) mod process {
    pub(in super::super) const PID: u32 = 1;
    pub(in super::super) const CMDLINE: u32 = 2;
    pub(in super::super) const PROCESS_NAME: u32 = 6;
}

pub(super) mod thread {
    pub(in super::super) const PID: u32 = 1;
    pub(in super::super) const TID: u32 = 2;
    pub(in super::super) const THREAD_NAME: u32 = 5;
}
