//! Messages in the encoding of protocol buffers, written field by field.

/// A message that is being written.
#[derive(Debug, Default)]
pub(crate) struct Message(Vec<u8>);

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
const FIXED32: u32 = 5;

impl Message {
    /// A message with no field.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A number: `uint64`, `uint32`, `int64` that is not negative, `bool` or an enumeration.
    #[inline]
    pub(crate) fn number(&mut self, field: u32, value: u64) -> &mut Self {
        self.tag(field, VARINT);
        varint(&mut self.0, value);
        self
    }

    /// A `fixed64`.
    #[inline]
    pub(crate) fn fixed(&mut self, field: u32, value: u64) -> &mut Self {
        self.tag(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A `fixed32`.
    #[inline]
    pub(crate) fn short(&mut self, field: u32, value: u32) -> &mut Self {
        self.tag(field, FIXED32);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A `string`.
    pub(crate) fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    /// A message inside of this one.
    #[inline]
    pub(crate) fn message(&mut self, field: u32, inner: &Self) -> &mut Self {
        self.bytes(field, &inner.0)
    }

    /// No field is there any longer.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether no field is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the message as a field of another one that is written to `out`.
    pub(crate) fn write(&self, field: u32, out: &mut Vec<u8>) {
        varint(out, u64::from(field << 3 | BYTES));
        varint(out, self.0.len() as u64);
        out.extend_from_slice(&self.0);
    }

    /// The same as with one message of which each of these is a part.
    #[inline]
    pub(crate) fn write_parts<const N: usize>(parts: [&Self; N], field: u32, out: &mut Vec<u8>) {
        varint(out, u64::from(field << 3 | BYTES));
        varint(out, parts.iter().map(|part| part.0.len() as u64).sum());
        parts.iter().for_each(|part| out.extend_from_slice(&part.0));
    }

    /// Begins a message inside of this one, whose fields are added by others.
    #[inline]
    pub(crate) fn start(&mut self, field: u32, inner: &Self) -> &mut Self {
        self.tag(field, BYTES);
        varint(&mut self.0, inner.0.len() as u64);
        self
    }

    /// Fields that are encoded already.
    pub(crate) fn append(&mut self, fields: &[u8]) -> &mut Self {
        self.0.extend_from_slice(fields);
        self
    }

    /// Its bytes.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// A `bytes`, or a message that is encoded already.
    #[inline]
    pub(crate) fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.tag(field, BYTES);
        varint(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Mostly the field is known when this is compiled, and so are the bytes.
    #[inline(always)]
    fn tag(&mut self, field: u32, wire: u32) {
        varint(&mut self.0, u64::from(field << 3 | wire));
    }
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // seven bits at a time
fn varint(out: &mut Vec<u8>, mut value: u64) {
    if value < 0x80 {
        return out.push(value as u8);
    }
    let (mut bytes, mut length) = ([0; 10], out.len());
    for byte in &mut bytes {
        let is_last = value < 0x80;
        *byte = value as u8 | if is_last { 0 } else { 0x80 };
        value >>= 7;
        length += 1;
        if is_last {
            break;
        }
    }
    // As many bytes each time are copied without a call.
    out.extend_from_slice(&bytes);
    out.truncate(length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_protocol_buffers_are() {
        assert_eq!(Message::new().short(16, 1).bytes(1, b"a").0, [0x85, 0x01, 1, 0, 0, 0, 0x0a, 1, b'a']);
        let (mut inner, mut out) = (Message::new(), Vec::new());
        inner.number(1, 150).text(2, "testing");
        Message::new().number(1, 0).fixed(47, 1).message(3, &inner).write(1, &mut out);
        let mut expected = vec![0x0a, 26, 0x08, 0, 0xf9, 0x02, 1, 0, 0, 0, 0, 0, 0, 0, 0x1a, 12, 0x08, 0x96, 0x01];
        expected.extend_from_slice(b"\x12\x07testing");
        assert_eq!(out, expected);
        out.clear();
        varint(&mut out, u64::MAX);
        assert_eq!(out, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    }
}
