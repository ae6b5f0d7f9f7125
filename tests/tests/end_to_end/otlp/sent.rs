//! What receivers have taken.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A span. Ids are hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty where it has none.
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) resource: BTreeMap<String, String>,
    pub(crate) links: Vec<String>,
    /// The causes of gaps, and how many events are missing in each.
    pub(crate) gaps: Vec<(String, u64)>,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// All spans, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Spans(Vec<Sent>);

/// Each span once, by its id.
#[derive(Debug)]
pub(crate) struct ById(pub(crate) BTreeMap<String, Sent>);

impl Spans {
    /// Reads requests as the receiver writes them, one a line.
    #[track_caller]
    pub(crate) fn read(lines: &str) -> Self {
        let mut spans = Vec::new();
        for line in lines.lines() {
            let request: Value = serde_json::from_str(line).expect("JSON");
            for resource in list(&request["resourceSpans"]) {
                let attributes = attributes(&resource["resource"]["attributes"]);
                let scopes = list(&resource["scopeSpans"]);
                scopes
                    .iter()
                    .flat_map(|scope| list(&scope["spans"]))
                    .for_each(|span| spans.push(sent(span, &attributes)));
            }
        }
        Self(spans)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The ids of all, however often they came.
    pub(crate) fn ids(self) -> BTreeSet<String> {
        self.0.into_iter().map(|span| span.id).collect()
    }

    /// Each, as it came; the same span must not have come again.
    #[track_caller]
    pub(crate) fn once(self) -> ById {
        self.times(1)
    }

    /// Each, as it came twice.
    #[track_caller]
    pub(crate) fn each_twice(self) -> ById {
        self.times(2)
    }

    #[track_caller]
    fn times(self, times: usize) -> ById {
        let mut by_id: BTreeMap<String, Vec<Sent>> = BTreeMap::new();
        self.0.into_iter().for_each(|span| by_id.entry(span.id.clone()).or_default().push(span));
        assert!(!by_id.is_empty(), "there are spans");
        let one = |(id, mut spans): (String, Vec<Sent>)| {
            assert!(spans.len() == times && spans.windows(2).all(|two| two[0] == two[1]), "{times} times: {spans:#?}");
            (id, spans.remove(0))
        };
        ById(by_id.into_iter().map(one).collect())
    }
}

impl ById {
    #[track_caller]
    pub(crate) fn get(&self, id: &str) -> &Sent {
        self.0.get(id).unwrap_or_else(|| panic!("{id} was not sent"))
    }

    pub(crate) fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Sent> {
        self.0.values().filter(move |span| span.attributes.get("spoor.kind").is_some_and(|known| known == kind))
    }

    /// Fails the test unless all are in this trace, below this span of others, and all that they name is there.
    #[track_caller]
    pub(crate) fn all_in(&self, trace: &str, outside: Option<&str>) {
        for span in self.0.values() {
            assert_eq!(span.trace, trace, "{span:#?}");
            let is_root = span.parent == outside.unwrap_or_default();
            assert!(is_root || self.0.contains_key(&span.parent), "the parent was not sent of {span:#?}");
            assert!(span.links.iter().all(|link| self.0.contains_key(link)), "a link leads nowhere of {span:#?}");
            assert!(!is_root || span.attributes["spoor.kind"] == "process", "{span:#?}");
            assert!(span.start <= span.end && span.start > 1_600_000_000_000_000_000, "{span:#?}");
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The value of an attribute as text, whatever it is.
fn plain(value: &Value) -> String {
    let value = value.as_object().and_then(|kinds| kinds.values().next()).unwrap_or(&Value::Null);
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn attributes(pairs: &Value) -> BTreeMap<String, String> {
    let pair = |pair: &Value| (text(&pair["key"]), plain(&pair["value"]));
    let read: BTreeMap<_, _> = list(pairs).iter().map(pair).collect();
    assert_eq!(read.len(), list(pairs).len(), "no name is there twice: {pairs}");
    read
}

/// Digits of what is written in base64.
fn digits(value: &Value) -> String {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut digits) = (0_usize, 0, String::new());
    for char in text(value).chars().filter(|char| *char != '=') {
        (bits, count) = (bits << 6 | DIGITS.find(char).expect("base64"), count + 6);
        if count >= 8 {
            count -= 8;
            digits.push_str(&format!("{:02x}", bits >> count & 0xff));
        }
    }
    digits
}

fn sent(span: &Value, resource: &BTreeMap<String, String>) -> Sent {
    let time = |name: &str| span[name].as_str().and_then(|time| time.parse().ok()).expect("a time");
    let gap = |event: &Value| {
        let told = attributes(&event["attributes"]);
        assert_eq!(event["name"], "gap");
        (told["spoor.cause"].clone(), told["spoor.count"].parse().expect("a number"))
    };
    Sent {
        trace: digits(&span["traceId"]),
        id: digits(&span["spanId"]),
        parent: digits(&span["parentSpanId"]),
        name: text(&span["name"]),
        state: text(&span["traceState"]),
        attributes: attributes(&span["attributes"]),
        resource: resource.clone(),
        links: list(&span["links"]).iter().map(|link| digits(&link["spanId"])).collect(),
        gaps: list(&span["events"]).iter().map(gap).collect(),
        start: time("startTimeUnixNano"),
        end: time("endTimeUnixNano"),
    }
}
