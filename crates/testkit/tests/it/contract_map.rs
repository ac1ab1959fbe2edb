//! Checks `docs/internals/contract.md`: every line of the contract, with a test that shows it, a listed divergence, or the reason
//! why there is neither.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The lines of the contract are numbered from 1 to this.
const LINES: usize = 480;

/// What lines marked `pending` wait for. Remove a word when its work is merged and its lines have tests.
const PENDING: &[&str] = &[];

/// Why a divergence has no line: the contract does not say how it is, only its first implementation did otherwise, or
/// Cellmate does what the contract says and more.
const UNMAPPED: [&str; 3] = ["unspecified", "first implementation", "addition"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_default()
}

/// What a row of the map says about a requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Proof {
    /// Tests or cases of the executable contract, which fail if the requirement is not met.
    Tests(Vec<String>),
    /// The first column of a row in `docs/internals/divergences.md`, and tests that show the requirement where it does not apply.
    Divergence(String, Vec<String>),
    /// The line asks nothing of this project.
    Nothing,
    /// The tests come with work that is not merged yet.
    Pending(String),
}

impl Proof {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(text) = text.strip_prefix("differs: ") {
            let (row, otherwise) =
                text.split_once("; otherwise ").map_or((text, None), |(row, rest)| (row, Some(rest)));
            let names = otherwise.map(names).transpose()?.unwrap_or_default();
            return Ok(Self::Divergence(row.to_owned(), names));
        }
        if let Some(work) = text.strip_prefix("pending: ") {
            return Ok(Self::Pending(work.to_owned()));
        }
        match text {
            "none" => Ok(Self::Nothing),
            _ => names(text).map(Self::Tests),
        }
    }
}

/// Reads test names in backticks, separated by commas.
fn names(text: &str) -> Result<Vec<String>, String> {
    let quoted = |part: &str| part.strip_prefix('`')?.strip_suffix('`').map(str::to_owned);
    // A comma may also be in the heading of a case.
    let names: Option<Vec<String>> = text.replace("`, `", "`\n`").lines().map(quoted).collect();
    names
        .filter(|names| names.iter().all(|name| !name.contains('`')))
        .ok_or_else(|| format!("`{text}` is no list of tests, divergence, `none` or `pending`"))
}

/// The map, as far as it can be read.
#[derive(Debug, Default)]
struct Map {
    /// Number and proof of each line of the contract, in the order of the file.
    lines: Vec<(usize, Proof)>,
    /// What Cellmate promises beyond the contract.
    beyond: Vec<Proof>,
    /// Divergences without a line, and why.
    unmapped: Vec<(String, String)>,
    problems: Vec<String>,
}

impl Map {
    /// Reads the rows of all tables: by their first column, which is a number, or by the heading above them.
    fn parse(text: &str) -> Self {
        let (mut map, mut heading) = (Self::default(), "");
        for row in text.lines() {
            heading = row.strip_prefix("## ").unwrap_or(heading);
            let Some(cells) = row.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) else { continue };
            let cells: Vec<&str> = cells.split(" | ").collect();
            match (heading, cells.as_slice()) {
                (_, [number, requirement, proof]) if number.parse::<usize>().is_ok() => {
                    let number = number.parse().unwrap();
                    map.add(number, requirement, proof);
                }
                ("Beyond the contract", [_, proof]) if proof.starts_with('`') => match Proof::parse(proof) {
                    Ok(proof) => map.beyond.push(proof),
                    Err(problem) => map.problems.push(problem),
                },
                ("Divergences without a line", [row, why]) if UNMAPPED.contains(why) => {
                    map.unmapped.push(((*row).to_owned(), (*why).to_owned()));
                }
                // The header of a table, and the totals.
                (_, [first, ..]) if ["#", "requirement", "divergence", "lines"].contains(first) => {}
                ("", [_, count]) if count.parse::<usize>().is_ok() => {}
                _ => map.problems.push(format!("a row that cannot be read: {row}")),
            }
        }
        map
    }

    fn add(&mut self, number: usize, requirement: &str, proof: &str) {
        if requirement.trim().is_empty() {
            self.problems.push(format!("line {number} has no requirement"));
        }
        match Proof::parse(proof) {
            Ok(proof) => self.lines.push((number, proof)),
            Err(problem) => self.problems.push(format!("line {number}: {problem}")),
        }
    }

    /// Everything that is wrong with the map, given the rows of `docs/internals/divergences.md` and the work that is not merged.
    fn check(&self, divergences: &[String], unmerged: &[&str]) -> Vec<String> {
        let mut problems = self.problems.clone();
        let mut add = |problem: String| problems.push(problem);
        let numbers: Vec<usize> = self.lines.iter().map(|(number, _)| *number).collect();
        let unique: BTreeSet<usize> = numbers.iter().copied().collect();
        let missing: Vec<usize> = (1..=LINES).filter(|number| !unique.contains(number)).collect();
        if !missing.is_empty() {
            add(format!("lines without a row: {missing:?}"));
        }
        if unique.len() != numbers.len() || unique.last().is_some_and(|last| *last > LINES) {
            add("a line has two rows, or a number is too large".to_owned());
        }
        let mut referenced: BTreeSet<&str> = BTreeSet::new();
        let numbered = self.lines.iter().map(|(number, proof)| (format!("line {number}"), proof));
        for (place, proof) in numbered.chain(self.beyond.iter().map(|proof| ("beyond".to_owned(), proof))) {
            match proof {
                Proof::Divergence(row, _) if divergences.contains(row) => drop(referenced.insert(row)),
                Proof::Divergence(row, _) => add(format!("{place}: docs/internals/divergences.md has no row `{row}`")),
                Proof::Pending(work) if !unmerged.contains(&work.as_str()) => {
                    add(format!("{place}: nothing is pending from `{work}`; name the tests"));
                }
                Proof::Tests(_) | Proof::Pending(_) | Proof::Nothing => {}
            }
            let (Proof::Tests(names) | Proof::Divergence(_, names)) = proof else { continue };
            for name in names.iter().filter(|name| !exists(name)) {
                add(format!("{place}: there is no test `{name}`"));
            }
        }
        for (row, _) in &self.unmapped {
            if !divergences.contains(row) {
                add(format!("docs/internals/divergences.md has no row `{row}`"));
            } else if !referenced.insert(row) {
                add(format!("`{row}` has a line, so it is not a divergence without one"));
            }
        }
        for row in divergences.iter().filter(|row| !referenced.contains(row.as_str())) {
            add(format!("no line names the divergence `{row}`"));
        }
        for work in unmerged {
            if !self.lines.iter().any(|(_, proof)| *proof == Proof::Pending((*work).to_owned())) {
                add(format!("no line is pending from `{work}`; remove it from the test's list"));
            }
        }
        problems
    }

    /// The numbers of lines that are shown by tests, differ and ask nothing, and of those that are pending.
    fn counts(&self) -> ([usize; 3], usize) {
        let (mut counts, mut pending) = ([0; 3], 0);
        for (_, proof) in &self.lines {
            let kind = match proof {
                Proof::Tests(_) => 0,
                Proof::Divergence(..) => 1,
                Proof::Nothing => 2,
                Proof::Pending(_) => {
                    pending += 1;
                    continue;
                }
            };
            counts[kind] += 1;
        }
        (counts, pending)
    }

    /// The sentence about the map in `docs/internals/proof.md`.
    fn summary(&self) -> String {
        let ([shown, differ, nothing], all) = (self.counts().0, self.lines.len());
        format!(
            "Of the {all} lines of the contract, {shown} are shown by tests, {differ} differ as listed, and {nothing} ask nothing"
        )
    }

    /// The table at the head of the map.
    fn totals(&self) -> String {
        let kinds = ["shown by tests", "differ, as docs/internals/divergences.md lists", "ask nothing"];
        let (counts, pending) = self.counts();
        let mut table = "| lines | number |\n|---|---|\n".to_owned();
        for (kind, count) in kinds.iter().zip(counts) {
            writeln!(table, "| {kind} | {count} |").unwrap();
        }
        if pending > 0 {
            writeln!(table, "| pending | {pending} |").unwrap();
        }
        writeln!(table, "| all | {} |", self.lines.len()).unwrap();
        table
    }
}

/// Returns the first column of each row of `docs/internals/divergences.md`.
fn divergences(text: &str) -> Vec<String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    // The first row is the table's header.
    rows.skip(1).filter_map(|row| row.split(" | ").next()).map(str::to_owned).collect()
}

/// Collects all Rust files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A source file with tests.
struct TestFile {
    /// The folders of its path in its crate, and its name without extension.
    path: Vec<String>,
    tests: BTreeSet<String>,
}

/// The files with tests of each crate, by the name of its folder.
static TEST_FILES: LazyLock<BTreeMap<String, Vec<TestFile>>> = LazyLock::new(|| {
    let crates = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    crates.filter(|folder| folder.is_dir()).map(|folder| (text_of(folder.file_name()), test_files(&folder))).collect()
});

fn text_of(name: Option<&OsStr>) -> String {
    name.unwrap_or_default().to_string_lossy().into_owned()
}

fn test_files(folder: &Path) -> Vec<TestFile> {
    let mut files = Vec::new();
    sources(folder, &mut files);
    let read = |file: PathBuf| {
        let path = file.strip_prefix(folder).unwrap().with_extension("");
        let path = path.iter().map(|part| text_of(Some(part))).collect();
        TestFile { path, tests: tests_in(&std::fs::read_to_string(&file).unwrap()) }
    };
    files.into_iter().map(read).filter(|file| !file.tests.is_empty()).collect()
}

/// Returns the names of the functions below a test attribute, except ignored ones.
fn tests_in(text: &str) -> BTreeSet<String> {
    let (mut attributes, mut found) = (Vec::new(), BTreeSet::new());
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            attributes.push(line);
            continue;
        }
        let has = |start: &str| attributes.iter().any(|attribute| attribute.starts_with(start));
        let function = line.trim_start_matches("async ").strip_prefix("fn ").and_then(|rest| rest.split_once('('));
        if let Some((name, _)) = function.filter(|_| (has("#[test") || has("#[tokio::test")) && !has("#[ignore")) {
            found.insert(name.to_owned());
        }
        attributes.clear();
    }
    found
}

/// Whether a crate has this test in a file whose path contains its modules.
fn has_test(name: &str, path: &str) -> bool {
    let (modules, test) = path.rsplit_once("::").unwrap_or(("", path));
    let is_in = |file: &TestFile| {
        modules.split("::").all(|module| module == "tests" || file.path.iter().any(|part| part == module))
    };
    TEST_FILES.get(name).is_some_and(|files| files.iter().any(|file| is_in(file) && file.tests.contains(test)))
}

/// Whether a test, a case of `spec/cells` or a hostile cell of `spec/hostile` has this name.
fn exists(name: &str) -> bool {
    if let Some((file, heading)) = name.split_once(": ") {
        return read(file).lines().any(|line| line.strip_prefix("## ") == Some(heading));
    }
    if let Some(file) = name.strip_prefix("spec/hostile/") {
        return read("spec/hostile/index.json").contains(&format!("\"{file}\""));
    }
    name.split_once(' ').is_some_and(|(name, path)| has_test(name, path))
}

#[test]
fn the_map_names_a_test_or_a_divergence_for_every_line_of_the_contract() {
    let text = read("docs/internals/contract.md");
    let map = Map::parse(&text);
    let totals = map.totals();
    println!("{totals}");
    let problems = map.check(&divergences(&read("docs/internals/divergences.md")), PENDING);
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    assert!(text.contains(&totals), "the totals at the head of docs/internals/contract.md are not these:\n{totals}");
    let summary = map.summary();
    assert!(read("docs/internals/proof.md").contains(&summary), "docs/internals/proof.md does not say: {summary}");
}

#[test]
fn a_missing_test_is_detected() {
    for right in [
        "testkit contract_map::a_missing_test_is_detected",
        "spec/cells/limits.md: An endless loop times out",
        "spec/hostile/h001_microtask_storm.js",
    ] {
        assert!(exists(right), "{right}");
    }
    for wrong in [
        "testkit contract_map::no_such_test",
        "testkit hooks::a_missing_test_is_detected",
        "testkit contract_map::exists",
        "store contract_map::a_missing_test_is_detected",
        "spec/cells/limits.md: No such heading",
        "spec/hostile/h001.js",
        "spec/hostile/index.json",
    ] {
        assert!(!exists(wrong), "{wrong}");
    }
}

#[test]
fn a_wrong_map_is_detected() {
    let test = "`testkit contract_map::a_wrong_map_is_detected`";
    let rows: Vec<String> = (1..=LINES)
        .map(|number| {
            let proof = match number {
                1 => format!("differs: a row; otherwise {test}"),
                2 | 3 => "none".to_owned(),
                4 => "pending: work".to_owned(),
                _ => test.to_owned(),
            };
            format!("| {number} | it works | {proof} |")
        })
        .collect();
    let head = "| lines | number |\n|---|---|\n| all | 1 |\n## One\n| # | requirement | proof |\n|---|---|---|\n";
    let more = "## Beyond the contract\n| requirement | tests |\n|---|---|\n| it is fast | TEST |\n\
                ## Divergences without a line\n| divergence | why |\n|---|---|\n| another row | unspecified |\n";
    let more = more.replace("TEST", test);
    let rows_of = |rows: &[String]| format!("{head}{}\n{more}", rows.join("\n"));
    let listed = ["a row".to_owned(), "another row".to_owned()];
    let problems = |text: &str| Map::parse(text).check(&listed, &["work"]);
    assert_eq!(problems(&rows_of(&rows)), [""; 0]);
    let changed = |number: usize, row: &str| {
        let mut rows = rows.clone();
        rows[number - 1] = row.to_owned();
        problems(&rows_of(&rows))
    };
    for (number, row, problem) in [
        (9, "", "lines without a row: [9]"),
        (9, "| 10 | it works | none |", "a line has two rows, or a number is too large"),
        (9, "| 481 | it works | none |", "a line has two rows, or a number is too large"),
        (9, "| 9 | | none |", "a row that cannot be read: | 9 | | none |"),
        (9, "| 9 | it works | soon |", "line 9: `soon` is no list of tests"),
        (9, "| 9 | it works | `testkit hooks::nothing` |", "line 9: there is no test `testkit hooks::nothing`"),
        (9, "| 9 | it works | `testkit a` and more |", "and more` is no list of tests"),
        (9, "| 9 | it works | pending: nobody |", "line 9: nothing is pending from `nobody`"),
        (1, "| 1 | it works | differs: a row; otherwise `testkit no::test` |", "line 1: there is no test"),
        (9, "| 9 | it works | differs: no row |", "line 9: docs/internals/divergences.md has no row `no row`"),
        (9, "| 9 | it works | differs: another row |", "`another row` has a line"),
        (1, "| 1 | it works | none |", "no line names the divergence `a row`"),
        (4, "| 4 | it works | none |", "no line is pending from `work`"),
    ] {
        let found = changed(number, row);
        assert!(found.iter().any(|one| one.contains(problem)), "{row}: {found:?}");
    }
    let totals = Map::parse(&rows_of(&rows)).totals();
    assert!(totals.contains("| shown by tests | 476 |\n") && totals.ends_with("| pending | 1 |\n| all | 480 |\n"));
}
