//! The id of a function as other readers of ATF expect it.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

#[derive(Serialize)]
struct Written {
    function_id: String,
    module_id: u64,
}

#[derive(Deserialize)]
struct Read {
    #[serde(alias = "id")]
    function_id: Id,
    /// It is the upper half of the id.
    #[serde(default, rename = "module_id")]
    _module_id: serde::de::IgnoredAny,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Number(u64),
    Text(String),
}

pub(super) fn serialize<S: Serializer>(id: &u64, to: S) -> Result<S::Ok, S::Error> {
    Written { function_id: format!("{id:#x}"), module_id: id >> 32 }.serialize(to)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    match Read::deserialize(from)?.function_id {
        Id::Number(id) => Ok(id),
        Id::Text(text) => {
            let digits = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
            digits.ok_or_else(|| D::Error::custom(format!("function_id {text:?} is not 0x and hexadecimal digits")))
        }
    }
}
