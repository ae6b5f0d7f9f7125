//! A short, bounded run of the fuzz targets' entry points, and their seeds.

#[path = "../../fuzz/entries.rs"]
mod entries;

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use quickcheck::{Arbitrary, Gen};

use crate::fixtures::{golden, golden_packets};

type Entry = fn(&[u8]);

/// The seeds of each target, by name: the goldens it can make something of.
fn seeds() -> BTreeMap<&'static str, (Entry, BTreeMap<String, Vec<u8>>)> {
    let stem = |name: &str| format!("golden-{}", name.trim_end_matches(".hex"));
    let packets: BTreeMap<_, _> = golden_packets().into_iter().map(|(name, bytes)| (stem(&name), bytes)).collect();
    let mut many = packets.clone();
    many.insert("golden-all".into(), packets.values().flatten().copied().collect());
    let runs = packets.into_iter().filter(|(name, _)| name.starts_with("golden-run-")).collect();
    let file = |name: &str, bytes: Vec<u8>| BTreeMap::from([(name.to_string(), bytes)]);
    BTreeMap::from([
        ("stream", (entries::stream as Entry, many.clone())),
        ("datagram", (entries::datagram, many)),
        ("run", (entries::run, runs)),
        ("index", (entries::index, file("golden-index", golden("atf/index.hex")))),
        ("detail", (entries::detail, file("golden-detail", golden("atf/detail.hex")))),
        ("manifest", (entries::manifest, file("golden-manifest", golden("atf/manifest.json")))),
    ])
}

fn corpus(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

/// With `SPOOR_WRITE_SEEDS` set it writes them instead.
#[test]
fn the_seed_corpus_is_made_of_the_goldens() {
    for (target, (_, seeds)) in seeds() {
        let folder = corpus(target);
        if env::var_os("SPOOR_WRITE_SEEDS").is_some() {
            fs::create_dir_all(&folder).expect("the corpus");
            seeds.iter().for_each(|(name, bytes)| fs::write(folder.join(name), bytes).expect("a seed"));
        }
        for (name, bytes) in seeds {
            let found = fs::read(folder.join(&name)).unwrap_or_default();
            assert_eq!(found, bytes, "{target}/{name}: write the seeds anew with SPOOR_WRITE_SEEDS=1 cargo test");
        }
    }
}

#[test]
fn the_fuzz_targets_survive_mutated_goldens() {
    let mut g = Gen::new(64);
    for (_, (entry, seeds)) in seeds() {
        let seeds: Vec<_> = seeds.into_values().collect();
        seeds.iter().for_each(|seed| entry(seed));
        for _ in 0..4000 {
            let mut data = g.choose(&seeds).expect("there are some").clone();
            for _ in 0..=usize::arbitrary(&mut g) % 4 {
                mutate(&mut data, &mut g);
            }
            entry(&data);
        }
    }
}

fn mutate(data: &mut Vec<u8>, g: &mut Gen) {
    let at = usize::arbitrary(g) % (data.len() + 1);
    match u8::arbitrary(g) % 6 {
        0 => data.truncate(at),
        1 => data.extend(Vec::<u8>::arbitrary(g)),
        2 => data.insert(at, u8::arbitrary(g)),
        3 => data.extend_from_within(at..),
        _ if at < data.len() && bool::arbitrary(g) => data[at] = u8::arbitrary(g),
        _ if at < data.len() => data[at] ^= 1 << (u8::arbitrary(g) % 8),
        _ => {}
    }
}
