//! A function as other readers of ATF expect it. Manifests have thousands of them, so that they are read and written without
//! a detour through maps.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
    ser::SerializeMap,
};

use super::FunctionEntry;

impl Serialize for FunctionEntry {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { id, offset, name, source, extra } = self;
        let mut members = to.serialize_map(None)?;
        members.serialize_entry("function_id", &Hexadecimal(*id))?;
        members.serialize_entry("module_id", &(id >> 32))?;
        members.serialize_entry("offset", offset)?;
        members.serialize_entry("name", name)?;
        if let Some(source) = source {
            members.serialize_entry("source", source)?;
        }
        for (name, value) in extra {
            members.serialize_entry(name, value)?;
        }
        members.end()
    }
}

struct Hexadecimal(u64);

impl Serialize for Hexadecimal {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{:#x}", self.0))
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Member {
    #[serde(alias = "id")]
    FunctionId,
    /// It is the upper half of the id.
    ModuleId,
    Offset,
    Name,
    Source,
    Other(String),
}

impl<'de> Deserialize<'de> for FunctionEntry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = FunctionEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a function")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<FunctionEntry, A::Error> {
                let (mut id, mut name, mut entry) = (None, None, FunctionEntry::default());
                while let Some(member) = members.next_key()? {
                    match member {
                        Member::FunctionId => id = Some(members.next_value::<Id>()?.0),
                        Member::ModuleId => drop(members.next_value::<IgnoredAny>()?),
                        Member::Offset => entry.offset = members.next_value()?,
                        Member::Name => name = Some(members.next_value()?),
                        Member::Source => entry.source = members.next_value()?,
                        Member::Other(other) => drop(entry.extra.insert(other, members.next_value()?)),
                    }
                }
                entry.id = id.ok_or_else(|| A::Error::missing_field("function_id"))?;
                entry.name = name.ok_or_else(|| A::Error::missing_field("name"))?;
                Ok(entry)
            }
        }

        from.deserialize_map(Members)
    }
}

struct Id(u64);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Digits;

        impl Visitor<'_> for Digits {
            type Value = Id;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or 0x and hexadecimal digits")
            }

            fn visit_u64<E: Error>(self, id: u64) -> Result<Id, E> {
                Ok(Id(id))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Id, E> {
                let digits = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
                let wrong = || E::custom(format!("function_id {text:?} is not 0x and hexadecimal digits"));
                digits.map(Id).ok_or_else(wrong)
            }
        }

        from.deserialize_any(Digits)
    }
}
