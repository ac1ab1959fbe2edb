//! Distinguishes a shell command that a model wrote instead of a cell from JavaScript, with or without a mistake.
//!
//! Many commands are valid JavaScript: `ls -la /tmp` is a subtraction and a division. Such a cell is refused only if it
//! could do nothing as JavaScript: no statement has a value or an effect, and the first one reads like a command.

use oxc_ast::ast::{
    ArrowFunctionBody, AssignmentOperator, AssignmentTarget, Expression, Program, Statement, UnaryOperator,
};
use oxc_span::GetSpan;

/// Returns whether a source that does not parse is clearly a shell command.
///
/// Returns false if JavaScript is likely: one line that is a statement or a declaration is enough.
pub(super) fn looks_like(source: &str) -> bool {
    let mut lines = source.lines().map(str::trim).filter(|line| !line.is_empty());
    let Some(first) = lines.clone().next() else { return false };
    if first.starts_with("#!") {
        return first.contains("sh");
    }
    if has_heredoc(source) {
        return true;
    }
    if lines.clone().any(is_javascript) {
        return false;
    }
    lines.find(|line| !line.starts_with('#')).is_some_and(|line| is_command(line) || is_block(source))
}

/// Returns whether a parsed cell is a shell command: as JavaScript it has neither a value nor an effect, and its first
/// statement reads like a command.
pub(super) fn is_commands(program: &Program<'_>, wrapped: &str) -> bool {
    let Some(statements) = statements(program) else { return false };
    let slice = |statement: &Statement<'_>| {
        let span = statement.span();
        wrapped.get(span.start as usize..span.end as usize).unwrap_or_default()
    };
    let whole = statements
        .first()
        .zip(statements.last())
        .and_then(|(first, last)| wrapped.get(first.span().start as usize..last.span().end as usize));
    if whole.is_some_and(has_heredoc) {
        return true;
    }
    let mut commands = statements.iter().filter(|statement| !is_variable_statement(statement));
    let Some(first) = commands.next() else { return false };
    is_inert(first) && commands.all(is_inert) && is_inert_command(slice(first))
}

/// Returns the statements of a cell without directives.
fn statements<'p, 'a>(program: &'p Program<'a>) -> Option<&'p [Statement<'a>]> {
    let [Statement::ExpressionStatement(statement)] = program.body.as_slice() else { return None };
    let Expression::ParenthesizedExpression(parenthesized) = &statement.expression else { return None };
    let Expression::ArrowFunctionExpression(arrow) = &parenthesized.expression else { return None };
    let ArrowFunctionBody::FunctionBody(body) = &arrow.body else { return None };
    body.directives.is_empty().then(|| body.statements.as_slice())
}

/// Returns whether a statement computes a value that nothing uses.
fn is_inert(statement: &Statement<'_>) -> bool {
    match statement {
        Statement::ExpressionStatement(statement) => is_inert_expression(&statement.expression),
        Statement::EmptyStatement(_) => true,
        _ => false,
    }
}

fn is_inert_expression(expression: &Expression<'_>) -> bool {
    match expression {
        Expression::Identifier(_)
        | Expression::StringLiteral(_)
        | Expression::NumericLiteral(_)
        | Expression::BooleanLiteral(_)
        | Expression::NullLiteral(_)
        | Expression::RegExpLiteral(_) => true,
        Expression::TemplateLiteral(template) => template.expressions.is_empty(),
        Expression::UnaryExpression(unary) => {
            unary.operator != UnaryOperator::Delete && is_inert_expression(&unary.argument)
        }
        Expression::BinaryExpression(binary) => is_inert_expression(&binary.left) && is_inert_expression(&binary.right),
        Expression::LogicalExpression(logical) => {
            is_inert_expression(&logical.left) && is_inert_expression(&logical.right)
        }
        Expression::StaticMemberExpression(member) => is_inert_expression(&member.object),
        Expression::SequenceExpression(sequence) => sequence.expressions.iter().all(is_inert_expression),
        Expression::ParenthesizedExpression(inner) => is_inert_expression(&inner.expression),
        _ => false,
    }
}

/// Returns whether a statement sets an upper-case name, as a shell sets a variable: `NODE_ENV="test"`.
fn is_variable_statement(statement: &Statement<'_>) -> bool {
    let Statement::ExpressionStatement(statement) = statement else { return false };
    let Expression::AssignmentExpression(assignment) = &statement.expression else { return false };
    let AssignmentTarget::AssignmentTargetIdentifier(name) = &assignment.left else { return false };
    assignment.operator == AssignmentOperator::Assign
        && is_upper_name(name.name.as_str())
        && is_inert_expression(&assignment.right)
}

/// Returns whether a statement without value and effect reads like a command.
fn is_inert_command(statement: &str) -> bool {
    let line = statement.lines().next().unwrap_or_default().trim().trim_end_matches(';');
    let (command, arguments) = line.split_once(' ').unwrap_or((line, ""));
    let arguments = arguments.trim_start();
    if is_known(command) {
        // With these, it is arithmetic or a comparison with a mistake.
        let arithmetic = ["+", "- ", "* ", "=", "!=", "?", "% ", "/ "];
        return !arithmetic.iter().any(|start| arguments.starts_with(start));
    }
    is_command_name(command) && (has_shell_word(arguments) || joins_commands(arguments))
}

fn is_javascript(line: &str) -> bool {
    const STARTS: [&str; 20] = [
        "const ",
        "let ",
        "var ",
        "await ",
        "return ",
        "function ",
        "async ",
        "class ",
        "import ",
        "throw ",
        "if (",
        "for (",
        "while (",
        "//",
        "/*",
        "type ",
        "interface ",
        "enum ",
        "export {",
        "export default ",
    ];
    let ends_statement = line.ends_with(';') && !line.ends_with("\\;");
    STARTS.iter().any(|start| line.starts_with(start)) || line.contains("=>") || ends_statement
}

/// Commands whose names are hardly ever names of variables: the name alone tells. Others, such as `test` and `date`, need
/// an option, a path or another command beside them.
const COMMANDS: &str = "apt apt-get awk aws az bash brew bun bunx cargo cat cd chmod chown clang cmake cp curl cut deno df \
    dig dirname docker docker-compose du echo env find gcc gcloud gh git grep gunzip gzip head helm \
    hostname java jq kill kubectl ln ls lsof make mkdir mv mysql nano netstat nohup node npm npx openssl \
    perl php ping pip pip3 pkill pnpm printf ps psql pwd pytest python python3 rg rm rmdir rsync ruby \
    scp sed sh sort ssh sudo systemctl tail tar tee terraform touch tsc uname unzip uv wget which whoami \
    xargs yarn";

/// Returns whether a word is one of these commands.
fn is_known(command: &str) -> bool {
    COMMANDS.split_whitespace().any(|known| known == command)
}

/// Returns whether a line that does not parse starts with a command and then an argument.
fn is_command(line: &str) -> bool {
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let (line, has_variable) = without_variables(line);
    let (command, arguments) = line.split_once(' ').unwrap_or((line, ""));
    let arguments = arguments.trim_start();
    if command == "export" {
        return is_variable(arguments);
    }
    if is_path(command) || is_known(command) {
        return !is_code(arguments);
    }
    is_command_name(command)
        && !is_code(arguments)
        && (has_variable || has_shell_word(arguments) || joins_commands(arguments))
}

/// Removes the variables that are set before a command, `FOO=1 BAR=x make`, and returns whether there were any.
fn without_variables(mut line: &str) -> (&str, bool) {
    let mut found = false;
    while let Some((first, rest)) = line.split_once(' ')
        && first.split_once('=').is_some_and(|(name, value)| is_upper_name(name) && !value.starts_with('='))
    {
        (line, found) = (rest.trim_start(), true);
    }
    (line, found)
}

/// Returns whether a word can be the name of a program that the lists do not have. Keywords of JavaScript cannot.
fn is_command_name(word: &str) -> bool {
    const KEYWORDS: &str = "async await break case class const continue debugger default delete do else enum export \
        extends false finally for function if import in instanceof let new null of return static super switch this \
        throw true try typeof undefined var void while with yield";
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(&byte);
    word.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase())
        && word.bytes().all(plain)
        && KEYWORDS.split_whitespace().all(|keyword| keyword != word)
}

/// Returns whether an argument is an option, a path or a variable as only shells have them. The operators of JavaScript
/// are followed by a space, or have none around them.
fn has_shell_word(arguments: &str) -> bool {
    arguments.split_whitespace().any(|word| {
        let is_letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphabetic);
        let bytes = word.as_bytes();
        match bytes.first() {
            Some(b'-') => {
                let name = word.trim_start_matches('-');
                let dashes = word.len() - name.len();
                dashes <= 2 && is_letter(name.as_bytes().first()) && !name.contains(['(', ')', '[', ';', ','])
            }
            Some(b'/') => is_letter(bytes.get(1)) && !word.contains(['(', ')', ';']),
            Some(b'$') => is_letter(bytes.get(1)) || bytes.get(1).is_some_and(|byte| b"({".contains(byte)),
            Some(b'.' | b'~') => ["./", "../", "~/"].iter().any(|start| word.starts_with(start)) || word == "..",
            Some(b'2' | b'&') => word.starts_with("2>") || word.starts_with("&>"),
            _ => false,
        }
    })
}

/// Returns whether the line goes on with a known command after `&&`, `||`, `|` or `;`.
fn joins_commands(arguments: &str) -> bool {
    let mut words = arguments.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let is_joint = ["&&", "||", "|"].contains(&word) || word.ends_with(';');
        if is_joint && words.peek().is_some_and(|next| is_known(next)) {
            return true;
        }
    }
    false
}

/// Returns whether a command reads the lines up to a delimiter: `cat <<EOF > file`. The lines may be JavaScript.
fn has_heredoc(source: &str) -> bool {
    let mut lines = source.lines().map(str::trim).skip_while(|line| line.is_empty() || line.starts_with('#'));
    let Some(first) = lines.next() else { return false };
    let Some((before, after)) = first.split_once("<<") else { return false };
    let command = before.split_whitespace().next().unwrap_or_default();
    let delimiter = after.trim_start_matches(['-', ' ']).split_whitespace().next().unwrap_or_default();
    let delimiter = delimiter.trim_matches(['\'', '"', '\\']);
    is_known(command) && !delimiter.is_empty() && lines.any(|line| line == delimiter)
}

/// Returns whether the text has a block of a shell: `for f in *; do … done`, `if [ -f x ]; then … fi`.
fn is_block(source: &str) -> bool {
    let words: Vec<&str> = source.split(|letter: char| letter.is_whitespace() || letter == ';').collect();
    let has = |word: &str| words.contains(&word);
    has("do") && has("done") || has("then") && has("fi") || has("case") && has("esac")
}

/// Returns whether the text after a name makes it JavaScript: `echo = 1`, `sort (x)`, `find .x`.
fn is_code(rest: &str) -> bool {
    let starts = ["=", "(", "[", "?", ":", "+", "* ", "- ", "< ", "> "];
    let property = rest.strip_prefix('.').unwrap_or_default();
    starts.iter().any(|start| rest.starts_with(start)) || property.starts_with(char::is_alphabetic)
}

/// Returns whether a name is written like an environment variable.
fn is_upper_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().next().is_some_and(|byte| byte.is_ascii_uppercase()) && name.bytes().all(plain)
}

/// Returns whether the arguments of `export` set an environment variable.
fn is_variable(arguments: &str) -> bool {
    arguments.split_once('=').is_some_and(|(name, _)| is_upper_name(name))
}

/// Returns whether the command is a path to a program, such as `./run.sh` or `/usr/bin/env`.
fn is_path(command: &str) -> bool {
    let rest = ["./", "../", "~/", "/usr/", "/bin/", "/opt/"].iter().find_map(|start| command.strip_prefix(start));
    rest.is_some_and(|rest| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
        !rest.is_empty() && rest.bytes().all(plain)
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use contract::cell::Language;
    use contract::config::Languages;

    use crate::source::{Rejection, prepare, prepare_allowing};

    fn is_shell(source: &str) -> bool {
        let rejected = prepare_allowing(source, Language::JavaScript, Languages::ALL);
        rejected.is_err_and(|rejection| rejection == Rejection::Shell)
    }

    #[test]
    fn shell_commands_are_recognised_whether_or_not_they_parse_as_javascript() {
        let shell = [
            "#!/bin/bash\necho hi",
            "#!/usr/bin/env sh",
            "ls -la",
            "ls -la /tmp",
            "pwd",
            "whoami;",
            "rm -rf /tmp/x",
            "cd /tmp && ls",
            "cd /tmp\nls",
            "cd ..",
            "cd /tmp && npm install",
            "cat file | grep x",
            "cat a | grep b",
            "cat < file",
            "cat <<EOF\nhello\nEOF",
            "cat > a.js <<'EOF'\nconst x = 1;\nreturn x;\nEOF",
            "cat <<-\"END\" | node\nconsole.log(1);\n  END",
            "echo $HOME",
            "echo hi > f",
            "echo \"hello\" > /tmp/x",
            "curl https://example.com",
            "curl -s https://example.com/a?b=c | jq .x",
            "$ git status --short",
            "git status",
            "# list the files\nls -la /tmp",
            "find . -name '*.rs' | wc -l",
            "find . -name '*.log' -exec rm {} \\;",
            "FOO=1 make",
            "NODE_ENV=test CI=1 yarn build",
            "FOO=1\nls -la",
            "./run.sh --flag",
            "./scripts/build.sh --release",
            "../gradlew build",
            "npm test",
            "npm run build",
            "python x.py",
            "python3 -c 'print(1)'",
            "export PATH=/bin",
            "mkdir -p a/b\ncd a/b\ntouch c",
            "tool --verbose",
            "mytool -v input",
            "gradle clean && git status",
            "test -f x && echo y",
            "go build ./...",
            "kill %1",
            "for f in *.txt; do echo $f; done",
            "if [ -f a ]; then cat a; fi",
        ];
        for source in shell {
            assert!(is_shell(source), "{source}");
        }
    }

    #[test]
    fn javascript_is_not_taken_for_shell() {
        let javascript = [
            "",
            "return 1 +",
            "const x = ;",
            "echo = = 1",
            "ls(",
            "sort.by((a, b) => a)",
            "find (x",
            "git\nconst a = 1 1",
            "#!/usr/bin/env node\nfoo(",
            "ls -la;\nreturn 1 2;",
            "cat - dog dog",
            "let cat = dog dog",
            "import fs from fs",
            "export abstract class A { b( }",
            "export const x = = 1",
            "result",
            "items.length",
            "total - tax",
            "FOO = 1",
            "the file is missing",
            "test this please",
            "id",
            "date",
            "width / height",
            "x && y || z",
            "cat.name + dog.name",
            "const ls = 1, la = 2; ls -la",
            "ls -la; return 1",
            "git.status()",
            "echo('hi')",
            "await ls -la",
            "a = ls -la",
            "`${ls -la}`",
            "delete cat.x",
            "'use strict'; pwd",
            "const make = 1; const EOF = 2; make << EOF;\nEOF",
        ];
        for source in javascript {
            assert!(!is_shell(source), "{source}");
        }
    }

    /// Returns the texts of the blocks in a Markdown file that start with one of these fences, each with what follows.
    fn cells(text: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut rest = text;
        while let Some(at) = ["```js cell\n", "```ts cell\n"].iter().filter_map(|fence| rest.find(fence)).min() {
            let after = rest.get(at + "```js cell\n".len()..).unwrap_or_default();
            let end = after.find("\n```").unwrap_or(after.len());
            let (cell, following) = after.split_at(end);
            let next = following.find("\n## ").unwrap_or(following.len());
            found.push((cell.to_owned(), following[..next].to_owned()));
            rest = following;
        }
        found
    }

    #[test]
    fn no_cell_of_the_contract_and_of_the_models_is_taken_for_shell_by_mistake() {
        let spec = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec");
        let (mut checked, mut refused) = (0, 0);
        for folder in ["cells", "models"] {
            for entry in std::fs::read_dir(spec.join(folder)).unwrap() {
                let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
                for (cell, expected) in cells(&text) {
                    let is_expected = expected.contains("looks like a shell command");
                    assert_eq!(is_shell(&cell), is_expected, "{cell}");
                    (checked, refused) = (checked + 1, refused + u32::from(is_expected));
                }
            }
        }
        assert!(checked > 250 && refused > 0, "{checked} cells, {refused} refused");
        for entry in std::fs::read_dir(spec.join("hostile")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "js") {
                let cell = std::fs::read_to_string(&path).unwrap();
                assert!(!is_shell(&cell), "{}", path.display());
            }
        }
    }

    #[test]
    fn typescript_cells_are_checked_too() {
        let rejected = |source| prepare(source, Language::TypeScript).err();
        assert_eq!(rejected("ls -la /tmp"), Some(Rejection::Shell));
        assert_eq!(rejected("type A = 1; ls -la"), None);
    }
}
