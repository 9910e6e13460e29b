//! Tables without borders, as in kubectl.

/// Aligns the columns with these names to the right.
pub(crate) fn right(header: &[&str], rows: &mut [Vec<String>], columns: &[&str]) {
    for (index, name) in header.iter().enumerate().filter(|(_, name)| columns.contains(name)) {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| wide(cell));
        let widest = cells.max().unwrap_or_default().max(wide(name));
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(index)) {
            *cell = format!("{}{cell}", " ".repeat(widest - wide(cell)));
        }
    }
}

fn terminal_width() -> Option<u16> {
    let term = console::Term::stdout();
    let (_, width) = term.is_term().then(|| term.size_checked()).flatten()?;
    (width >= 40).then_some(width)
}

/// A row of a table, and the lines below it.
#[derive(Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) cells: Vec<String>,
    pub(crate) beneath: Vec<String>,
}

/// A table with lines below its rows, at most `width` wide if that is given: a first cell that is too long gets its own line,
/// and the lines below wrap.
pub(crate) fn listing(header: &[&str], rows: &[Row], width: Option<usize>) -> String {
    let header: Vec<String> = header.iter().map(|&name| name.to_owned()).collect();
    let all = || std::iter::once(&header).chain(rows.iter().map(|row| &row.cells));
    let widest = |index: usize| all().filter_map(|cells| cells.get(index)).map(|cell| wide(cell)).max();
    let mut widths: Vec<usize> = (0..header.len()).filter_map(widest).collect();
    let others: usize = widths.iter().skip(1).map(|width| width + GAP).sum();
    if let (Some(first), Some(width)) = (widths.first_mut(), width) {
        *first = (*first).min(width.saturating_sub(others).max(wide(&header[0])));
    }
    let mut text = line(&header, &widths);
    for row in rows {
        text.push_str(&line(&row.cells, &widths));
        for beneath in &row.beneath {
            wrap(beneath, width, &mut text);
        }
    }
    text
}

/// The space between two columns, and before a line below a row.
const GAP: usize = 2;

fn wide(text: &str) -> usize {
    console::measure_text_width(text)
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if index > 0 {
            line.push_str(&" ".repeat(GAP));
        }
        line.push_str(cell);
        match width.checked_sub(wide(cell)) {
            Some(pad) => line.push_str(&" ".repeat(pad)),
            None => line.push_str(&format!("\n{}", " ".repeat(*width))),
        }
    }
    line.trim_end().to_owned() + "\n"
}

/// Adds an indented line, wrapped if it is too long.
pub(crate) fn wrap(text: &str, width: Option<usize>, into: &mut String) {
    wrap_from(GAP, text, width, into);
}

/// Adds a line, wrapped and indented if it is too long.
pub(crate) fn wrap_hanging(text: &str, width: Option<usize>, into: &mut String) {
    wrap_from(0, text, width, into);
}

fn wrap_from(first: usize, text: &str, width: Option<usize>, into: &mut String) {
    let Some(width) = width else {
        // In a pipe, a line may have any length.
        let words: Vec<&str> = text.split_whitespace().collect();
        let indent = if words.is_empty() { 0 } else { first };
        into.push_str(&format!("{}{}\n", " ".repeat(indent), words.join(" ")));
        return;
    };
    let room = width.saturating_sub(GAP).max(1);
    let (mut used, mut indent) = (0, first);
    for word in text.split_whitespace() {
        for piece in pieces(word, room) {
            if used > 0 && used + 1 + wide(&piece) <= width.saturating_sub(indent).max(1) {
                into.push(' ');
                used += 1;
            } else {
                if used > 0 {
                    into.push('\n');
                    indent = GAP;
                }
                into.push_str(&" ".repeat(indent));
                used = 0;
            }
            into.push_str(&piece);
            used += wide(&piece);
        }
    }
    into.push('\n');
}

/// Splits a word into pieces that fit.
fn pieces(word: &str, room: usize) -> Vec<String> {
    let characters: Vec<char> = word.chars().collect();
    characters.chunks(room).map(|piece| piece.iter().collect()).collect()
}

/// The width of the terminal; none in a pipe.
pub(crate) fn width() -> Option<usize> {
    terminal_width().map(usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str], beneath: &[&str]) -> Row {
        let own = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Row { cells: own(cells), beneath: own(beneath) }
    }

    #[test]
    fn a_listing_keeps_to_its_width() {
        let rows = [
            row(&["secrets-x7k2p", "Running", "42%"], &["233/s, 7.8s left"]),
            row(&["customresourcedefinitions.apiextensions.k8s.io-abcde", "Failed", ""], &["one two three"]),
        ];
        let header = ["NAME", "PHASE", "PROGRESS"];
        assert_eq!(
            listing(&header, &rows[..1], None),
            "NAME           PHASE    PROGRESS\nsecrets-x7k2p  Running  42%\n  233/s, 7.8s left\n"
        );
        let narrow = listing(&header, &rows, Some(40));
        let lines: Vec<&str> = narrow.lines().collect();
        assert_eq!(lines[1], "secrets-x7k2p          Running  42%");
        // Too long for its column: the rest of its row follows below.
        assert_eq!(lines[3], "customresourcedefinitions.apiextensions.k8s.io-abcde");
        assert_eq!(lines[4], "                       Failed");
        for width in [52, 60, 80, 120] {
            let text = listing(&header, &rows, Some(width));
            assert!(text.lines().all(|line| wide(line) <= width), "{width}:\n{text}");
        }
    }

    #[test]
    fn numbers_stand_to_the_right() {
        let mut rows = vec![vec!["a".to_owned(), "1,000".to_owned()], vec!["b".to_owned(), "7".to_owned()]];
        right(&["NAME", "COUNT"], &mut rows, &["COUNT"]);
        assert_eq!(rows, [["a", "1,000"], ["b", "    7"]]);
        right(&["NAME", "COUNT"], &mut [], &["COUNT"]);
    }

    #[test]
    fn lines_beneath_wrap_between_words_where_they_can() {
        for (text, width, expected) in [
            ("one two three", None, "  one two three\n"),
            ("one two three", Some(9), "  one two\n  three\n"),
            ("abcdefghij", Some(6), "  abcd\n  efgh\n  ij\n"),
            ("", Some(6), "\n"),
        ] {
            let mut wrapped = String::new();
            wrap(text, width, &mut wrapped);
            assert_eq!(wrapped, expected, "{text} in {width:?}");
        }
        let mut wrapped = String::new();
        wrap_hanging("one two three four", Some(9), &mut wrapped);
        assert_eq!(wrapped, "one two\n  three\n  four\n");
    }
}
