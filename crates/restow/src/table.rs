//! Tables without lines, as kubectl draws them.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// A table whose columns named in `right` are set to the right. On a terminal long cells wrap to its width.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>, right: &[&str]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if let Some(width) = terminal_width() {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table.set_header(header.to_vec());
    table.add_rows(rows);
    for (index, name) in header.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
            if right.contains(name) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn terminal_width() -> Option<u16> {
    let term = console::Term::stdout();
    let (_, width) = term.is_term().then(|| term.size_checked()).flatten()?;
    (width >= 40).then_some(width)
}
