//! What would be hooked in a program and the libraries it is linked with.

use std::{
    collections::BTreeMap,
    fmt::Write,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use agent::plan::{Action, Function, Image, Kind, ModulePlan, Reason, plan};
use anyhow::{Result, anyhow};
use codec::text::printable;
use serde_json::{Value, json};

use crate::{
    args::ListArgs,
    executable::Executable,
    manual::print,
    quantity::count,
    rules::Rules,
    settings::{SettingsError, symbol_finder},
    symbols::{FoundLines, SourceFiles},
};

pub(crate) fn run(args: &ListArgs) -> Result<ExitCode> {
    let program = Executable::locate(&args.program).map_err(|error| anyhow!(error.message))?.image;
    let rules = Rules::new(args.rules.list()).map_err(SettingsError::or_wrong_usage)?;
    let symbols = symbol_finder(&args.symbols).map_err(|error| anyhow!(error))?;
    let open = |path: &Path| {
        let mut image = Image::open(path).map_err(|error| anyhow!("cannot list {}: {error}", path.display()))?;
        let whole = path.canonicalize().unwrap_or_else(|_| path.into());
        let lines = symbols.complete(&mut image, Path::new("/"), &whole, true);
        anyhow::Ok((image, lines))
    };
    let (image, lines) = open(&program)?;
    let found = libraries(&program, &image)?;
    let mut listings = vec![Listing::new(program, &image, &lines, &rules)];
    for library in &found.paths {
        let (image, lines) = open(library)?;
        listings.push(Listing::new(library.clone(), &image, &lines, &rules));
    }
    rules.warn_of_unmatched();
    for name in &found.missing {
        say!("the program needs {name}, which the loader does not find");
    }
    let mut out = String::new();
    if args.json {
        for listing in &listings {
            writeln!(out, "{}", listing.json(args.functions))?;
        }
    } else {
        if args.functions {
            listings.iter().try_for_each(|listing| listing.functions(&mut out))?;
        }
        table(&listings, &mut out)?;
        if image.is_static() {
            writeln!(out, "\nIt is linked statically: --engine native traces it, Frida cannot.")?;
        }
    }
    print(out.as_bytes())
}

/// What would be done to one module.
struct Listing {
    path: PathBuf,
    build_id: String,
    plan: ModulePlan,
    counts: Counts,
}

#[derive(Debug, Default, Clone)]
struct Counts {
    functions: usize,
    hooked: usize,
    probed: usize,
    unwinders: usize,
    left: BTreeMap<Reason, usize>,
}

impl Counts {
    fn of(plan: &ModulePlan) -> Self {
        let mut counts = Self { functions: plan.functions.len(), ..Self::default() };
        for function in &plan.functions {
            match &function.action {
                Action::Hook(hook) => match hook.kind {
                    Kind::Frame => counts.hooked += 1,
                    Kind::Probe | Kind::Go => counts.probed += 1,
                    Kind::Unwinder => counts.unwinders += 1,
                },
                Action::Leave(reason) => *counts.left.entry(*reason).or_default() += 1,
            }
        }
        counts
    }

    fn add(&mut self, other: &Self) {
        self.functions += other.functions;
        self.hooked += other.hooked;
        self.probed += other.probed;
        self.unwinders += other.unwinders;
        for (reason, number) in &other.left {
            *self.left.entry(*reason).or_default() += number;
        }
    }

    fn row(&self) -> [String; 5] {
        let left: usize = self.left.values().sum();
        [self.functions, self.hooked, self.probed, self.unwinders, left].map(|number| count(number as u64))
    }
}

impl Listing {
    fn new(path: PathBuf, image: &Image, lines: &FoundLines, rules: &Rules) -> Self {
        let sources = SourceFiles::of(lines.file.as_ref());
        let name = path.to_string_lossy();
        let of_module = rules.of_module(&name);
        let plan = plan(image, None, &|function| of_module.leave(function, &|address| sources.file(address)));
        let build_id = image.build_id().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { path, build_id, counts: Counts::of(&plan), plan }
    }

    fn json(&self, functions: bool) -> Value {
        let Counts { functions: all, hooked, probed, unwinders, left } = &self.counts;
        let left: BTreeMap<_, _> = left.iter().map(|(reason, number)| (reason.as_str(), number)).collect();
        let mut object = json!({
            "module": self.path.to_string_lossy(),
            "build_id": self.build_id,
            "functions": all,
            "hooked": hooked,
            "probed": probed,
            "unwinders": unwinders,
            "left": left,
        });
        if functions {
            object["list"] = self.plan.functions.iter().map(function_json).collect();
        }
        object
    }

    fn functions(&self, out: &mut String) -> Result<()> {
        writeln!(out, "{}", self.path.display())?;
        for function in &self.plan.functions {
            let name = if function.name.is_empty() { "(no name)" } else { &function.name };
            writeln!(out, "  {:#012x}  {:24}  {}", function.address, verdict(function), printable(name))?;
        }
        out.push('\n');
        Ok(())
    }
}

fn verdict(function: &Function) -> &'static str {
    match &function.action {
        Action::Hook(hook) => hook.kind.as_str(),
        Action::Leave(reason) => reason.as_str(),
    }
}

fn function_json(function: &Function) -> Value {
    let mut object = json!({ "address": format!("{:#x}", function.address), "name": function.name });
    object["aliases"] = function.aliases.clone().into();
    let key = if function.hook().is_some() { "hook" } else { "left" };
    object[key] = verdict(function).into();
    object
}

/// A line for each module, one for all, and what the reasons mean.
fn table(listings: &[Listing], out: &mut String) -> Result<()> {
    let mut total = Counts::default();
    let mut rows =
        vec![("module".to_string(), ["functions", "hooked", "probed", "unwinders", "left"].map(String::from))];
    for listing in listings {
        total.add(&listing.counts);
        rows.push((listing.path.display().to_string(), listing.counts.row()));
    }
    rows.push(("all".into(), total.row()));
    let first = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> =
        (0..5).map(|column| rows.iter().map(|(_, row)| row[column].len()).max().unwrap_or_default()).collect();
    for (name, row) in &rows {
        write!(out, "{name:first$}")?;
        for (cell, width) in row.iter().zip(&widths) {
            write!(out, "  {cell:>width$}")?;
        }
        out.push('\n');
    }
    if !total.left.is_empty() {
        out.push_str("\nleft alone:\n");
    }
    let mut reasons: Vec<_> = total.left.iter().collect();
    reasons.sort_by(|one, other| other.1.cmp(one.1));
    for (reason, number) in reasons {
        writeln!(out, "  {:>9}  {}: {}", count(*number as u64), reason.as_str(), reason.explain())?;
    }
    Ok(())
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Libraries {
    paths: Vec<PathBuf>,
    missing: Vec<String>,
}

/// Asks the program's own loader what it would load. The program is not run.
fn libraries(program: &Path, image: &Image) -> Result<Libraries> {
    let Some(interpreter) = image.interpreter() else { return Ok(Libraries::default()) };
    let absolute = program.canonicalize()?;
    let output = Command::new(interpreter).arg("--list").arg(absolute).stdin(Stdio::null()).output();
    let output = output
        .map_err(|error| anyhow!("cannot ask {interpreter} for the libraries of {}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut found = parse(&text);
    // The loader lists itself under the name that the program gives it.
    let loader = PathBuf::from(interpreter);
    if !found.paths.contains(&loader) {
        found.paths.push(loader);
    }
    Ok(found)
}

/// Lines such as `libc.so.6 => /lib/libc.so.6 (0x7f…)`, `libx.so => not found` and `/lib64/ld.so (0x7f…)`.
fn parse(text: &str) -> Libraries {
    let mut found = Libraries::default();
    for line in text.lines().map(str::trim) {
        let place = line.split_once(" => ").map_or(line, |(_, place)| place);
        if place.starts_with("not found") {
            found.missing.push(line.split_once(" => ").map_or(line, |(name, _)| name).to_string());
        } else if place.starts_with('/') {
            let path = place.rsplit_once(" (0x").map_or(place, |(path, _)| path);
            found.paths.push(path.into());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_list_is_read() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/my libs/libc.so.6 (0x00007f00)\n\
                    \tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f01)\n";
        let found = parse(text);
        assert_eq!(found.paths, ["/lib/my libs/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from));
        assert_eq!(found.missing, ["libgone.so"]);
    }
}
