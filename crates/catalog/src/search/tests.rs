//! Search results for ordinary and hostile requests and descriptions.

use contract::tool::{ToolId, ToolSpec};
use serde_json::json;

use super::{Document, EmbeddingTable, Index, Weights};

fn document(id: &str, description: &str) -> Document {
    Document::of(&ToolSpec::new(ToolId::parse(id).unwrap(), description, json!({"type": "object"})))
}

fn office() -> Vec<Document> {
    vec![
        document("mcp:github:create_issue", "Create a new issue in a repository."),
        document("mcp:github:list_issues", "List issues of a repository, with filters."),
        document("mcp:calendar:create_event", "Put an appointment into the calendar."),
        document("mcp:mail:send_message", "Send an e-mail with attachments."),
        document("openclaw:core:read", "Read a file of the workspace."),
        document("mcp:db:run_query", "Run SQL against the warehouse. Never writes."),
    ]
}

fn found(index: &Index, documents: &[Document], query: &str) -> Vec<String> {
    index.rank(query, 3, |_| true).into_iter().map(|hit| documents[hit.position].id.clone()).collect()
}

fn by_words(documents: &[Document]) -> Index {
    Index::new(documents.to_vec(), None, Weights::SHIPPED)
}

#[test]
fn an_exact_name_or_id_comes_first_in_any_spelling() {
    let mut documents = office();
    documents
        .push(document("mcp:loud:read_everything", "read read read a file file, read files, the best way to read"));
    let index = by_words(&documents);
    for (query, first) in [
        ("read", "openclaw:core:read"),
        ("Read", "openclaw:core:read"),
        ("openclaw:core:read", "openclaw:core:read"),
        ("createIssue", "mcp:github:create_issue"),
        ("create-issue", "mcp:github:create_issue"),
        ("mcp:github:create_issue", "mcp:github:create_issue"),
    ] {
        assert_eq!(found(&index, &documents, query)[0], first, "{query}");
    }
}

#[test]
fn tools_are_found_by_words_of_their_texts() {
    let documents = office();
    let index = by_words(&documents);
    for (query, first) in [
        ("open an issue about the crash", "mcp:github:create_issue"),
        ("all issues, please list them", "mcp:github:list_issues"),
        ("Send the report. Attachments too, please!", "mcp:mail:send_message"),
        ("appointments", "mcp:calendar:create_event"),
    ] {
        assert_eq!(found(&index, &documents, query)[0], first, "{query}");
    }
    assert!(found(&index, &documents, "zebra").is_empty());
    assert!(found(&index, &documents, "").is_empty());
    assert!(found(&index, &documents, "the of and").is_empty());
}

#[test]
fn keyword_stuffing_does_not_improve_the_rank() {
    let mut documents = office();
    let stuffed = "create issue github repository send mail calendar event query file read ".repeat(60);
    for number in 0..5 {
        documents.push(document(&format!("mcp:spam:best_tool_{number}"), &stuffed));
    }
    let index = by_words(&documents);
    for (query, first) in [
        ("create a github issue", "mcp:github:create_issue"),
        ("send mail", "mcp:mail:send_message"),
        ("calendar event", "mcp:calendar:create_event"),
        ("read a file", "openclaw:core:read"),
    ] {
        assert_eq!(found(&index, &documents, query)[0], first, "{query}");
    }
}

#[test]
fn parameters_and_their_allowed_words_are_searched() {
    let schema = json!({"type": "object", "properties": {
        "city": {"type": "string", "description": "Where the weather is wanted."},
        "unit": {"enum": ["celsius", "fahrenheit"]},
    }});
    let mut documents = office();
    documents.push(Document::of(&ToolSpec::new(ToolId::parse("plugin:sky:now").unwrap(), "Current state.", schema)));
    let index = by_words(&documents);
    assert_eq!(found(&index, &documents, "weather in celsius"), ["plugin:sky:now"]);
}

#[test]
fn an_updated_index_equals_a_new_one() {
    let before = office();
    let mut after = before.clone();
    after.remove(1);
    after.push(document("mcp:github:close_issue", "Close an issue of a repository."));
    let (updated, fresh) = (by_words(&before).updated(after.clone()), by_words(&after));
    for query in ["close issue", "list issues", "create", "repository", "sql"] {
        assert_eq!(updated.rank(query, 10, |_| true), fresh.rank(query, 10, |_| true), "{query}");
    }
}

#[test]
fn the_order_of_tools_changes_nothing() {
    let documents = office();
    let mut turned = documents.clone();
    turned.reverse();
    for query in ["issue", "create", "run a query in the warehouse", "mail"] {
        assert_eq!(
            found(&by_words(&documents), &documents, query),
            found(&by_words(&turned), &turned, query),
            "{query}"
        );
    }
}

#[test]
fn a_score_can_be_explained() {
    let documents = office();
    let index = by_words(&documents);
    let why = index.explain("create an issue", 0).unwrap();
    assert!(!why.exact && why.words > 0.99 && why.meaning.is_none());
    assert_eq!(why.matched.iter().map(|(word, _)| word.as_str()).collect::<Vec<_>>(), ["creat", "issu"]);
    assert!(index.explain("create_issue", 0).unwrap().exact);
    assert!(index.explain("create", documents.len()).is_none());
}

#[test]
fn hidden_tools_are_not_found_and_limits_apply() {
    let documents = office();
    let index = by_words(&documents);
    let shown = index.rank("create issue", 10, |position| position != 0);
    assert!(shown.iter().all(|hit| hit.position != 0) && !shown.is_empty());
    assert_eq!(index.rank("create issue", 1, |_| true).len(), 1);
    assert!(index.rank("create issue", 0, |_| true).is_empty());
}

/// A table of four words: `mail` and `letter` have the same meaning, `car` and `engine` another.
fn table() -> &'static [u8] {
    let mut bytes = b"CMEANING".to_vec();
    for number in [2_u32, 4, 8, 0] {
        bytes.extend(number.to_le_bytes());
    }
    for word in ["mail", "letter", "car", "engine"] {
        bytes.push(u8::try_from(word.len()).unwrap());
        bytes.extend(word.as_bytes());
    }
    bytes.extend([1.0_f32; 4].iter().flat_map(|scale| scale.to_le_bytes()));
    // The low bits of numbers 0 and 4, 1 and 5, 2 and 6, 3 and 7, and the fifth bits of all: 0 and 4 are large or small.
    for (zero_and_four, fifth) in [(0x0F, 0b0000_0001), (0x0E, 0b0000_0001), (0xF0, 0b0001_0000), (0xE0, 0b0001_0000)] {
        bytes.extend([zero_and_four, 0xFF, 0xFF, 0xFF, fifth]);
    }
    bytes.leak()
}

#[test]
fn meaning_finds_tools_without_common_words() {
    let meaning: &'static EmbeddingTable = Box::leak(Box::new(EmbeddingTable::read(table()).unwrap()));
    let documents = vec![document("plugin:post:dispatch", "letter"), document("plugin:garage:start", "engine")];
    let index = Index::new(documents.clone(), Some(meaning), Weights::SHIPPED);
    assert_eq!(found(&index, &documents, "mail"), ["plugin:post:dispatch"]);
    assert_eq!(found(&index, &documents, "car"), ["plugin:garage:start"]);
    assert!(found(&by_words(&documents), &documents, "mail").is_empty());
}

#[test]
fn a_damaged_table_is_refused() {
    let whole = table();
    for end in 0..whole.len() {
        assert!(EmbeddingTable::read(&whole[..end]).is_err(), "{end}");
    }
    let mut longer = whole.to_vec();
    longer.push(0);
    assert!(EmbeddingTable::read(longer.leak()).is_err());
    let mut foreign = whole.to_vec();
    foreign[8] = 1;
    assert!(EmbeddingTable::read(foreign.leak()).is_err());
}

/// `make` builds the table before anything else. Without it this test fails, and search matches words only.
#[test]
fn the_shipped_table_finds_tools_by_meaning() {
    let meaning = EmbeddingTable::shipped().expect("the build has no embedding table: run `make setup`");
    let documents = office();
    let index = Index::new(documents.clone(), Some(meaning), Weights::SHIPPED);
    for (query, first) in [
        ("report a bug", "mcp:github:create_issue"),
        ("schedule a meeting", "mcp:calendar:create_event"),
        ("look something up in the database", "mcp:db:run_query"),
    ] {
        assert_eq!(found(&index, &documents, query)[0], first, "{query}");
    }
}

#[test]
fn hostile_requests_and_descriptions_are_bounded() {
    let book = "word salad ".repeat(1 << 18);
    let documents =
        vec![document("plugin:a:b", &book), document("plugin:a:c", "\u{202e}\u{0}🦀"), document("plugin:a:d", "")];
    let index = by_words(&documents);
    assert_eq!(found(&index, &documents, &book), ["plugin:a:b"]);
    assert!(found(&index, &documents, &"\u{202e}".repeat(1 << 16)).is_empty());
    assert!(found(&index, &documents, &"a.b ".repeat(1 << 16)).len() <= 3);
}
