//! The token file of kube-apiserver: CSV with one user on each line, and all groups in one quoted column.

use crate::auth::user::User;

/// An error in a token file. It never shows a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    /// A line has too few columns.
    #[error("line {line} has {columns} columns, not at least three (token, user name, user uid)")]
    Columns {
        /// The line, counted from 1.
        line: usize,
        /// How many columns the line has.
        columns: usize,
    },
    /// A quote is misplaced or not closed.
    #[error("line {line} has an unmatched quote")]
    Quote {
        /// The line, counted from 1.
        line: usize,
    },
}

/// The tokens with their users. Lines without a token are ignored; of two lines with one token, the last counts.
pub(super) fn parse(text: &str) -> Result<Vec<(String, User)>, TokenFileError> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let line_number = index + 1;
        let fields = fields(line).ok_or(TokenFileError::Quote { line: line_number })?;
        let [token, name, uid, rest @ ..] = &fields[..] else {
            return Err(TokenFileError::Columns { line: line_number, columns: fields.len() });
        };
        let groups = rest.first().map(String::as_str).unwrap_or_default().split(',').map(str::trim);
        let groups: Vec<&str> = groups.filter(|group| !group.is_empty()).collect();
        if !token.is_empty() {
            found.push((token.clone(), User { uid: uid.clone(), ..User::known(name, groups) }));
        }
    }
    Ok(found)
}

/// The columns of a line; none if a quote is not closed.
fn fields(line: &str) -> Option<Vec<String>> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let (field, after) = match rest.trim_start().strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)?,
            None => plain_field(rest)?,
        };
        fields.push(field);
        match after {
            Some(after) => rest = after,
            None => return Some(fields),
        }
    }
}

fn plain_field(text: &str) -> Option<(String, Option<&str>)> {
    let (field, after) = match text.split_once(',') {
        Some((field, after)) => (field, Some(after)),
        None => (text, None),
    };
    (!field.contains('"')).then(|| (field.trim().to_owned(), after))
}

/// A column up to its closing quote. Two quotes stand for one.
fn quoted_field(text: &str) -> Option<(String, Option<&str>)> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"')?;
        field.push_str(part);
        if let Some(more) = after.strip_prefix('"') {
            field.push('"');
            rest = more;
            continue;
        }
        let after = after.trim();
        return match after.strip_prefix(',') {
            Some(next) => Some((field, Some(next))),
            None => after.is_empty().then_some((field, None)),
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_line_of_a_token_file_is_a_user() {
        for (line, expected) in [
            ("t,alice,7", "t alice/7 [system:authenticated]"),
            ("t,alice,7,dev", "t alice/7 [dev system:authenticated]"),
            ("t,alice,7,\"dev,ops\"", "t alice/7 [dev ops system:authenticated]"),
            ("t, alice , 7 , \"dev,ops\" ,more", "t alice/7 [dev ops system:authenticated]"),
            ("t,\"al,\"\"ice\",7,\"\"", "t al,\"ice/7 [system:authenticated]"),
            ("t,alice,7,\"system:authenticated\"", "t alice/7 [system:authenticated]"),
            ("", ""),
            ("   ", ""),
            (",alice,7", ""),
            ("t,alice", "line 1 has 2 columns, not at least three (token, user name, user uid)"),
            ("t", "line 1 has 1 columns, not at least three (token, user name, user uid)"),
            ("t,alice,7,\"dev", "line 1 has an unmatched quote"),
            ("t,al\"ice,7", "line 1 has an unmatched quote"),
            ("t,\"alice\"x,7", "line 1 has an unmatched quote"),
        ] {
            let text = match parse(line) {
                Ok(users) => users
                    .into_iter()
                    .map(|(token, user)| {
                        format!("{token} {}/{} [{}]", user.name, user.uid, user.groups.join(" "))
                    })
                    .collect::<Vec<_>>()
                    .join("; "),
                Err(error) => error.to_string(),
            };
            assert_eq!(text, expected, "{line}");
        }
    }

    #[test]
    fn errors_say_which_line_and_show_no_token() {
        let error = parse("t,alice,7\r\n\nsecret,bob\n").unwrap_err();
        assert_eq!(error, TokenFileError::Columns { line: 3, columns: 2 });
        assert!(!error.to_string().contains("secret"));
    }

    proptest! {
        #[test]
        fn no_token_file_panics(text in "[a\",\n \\PC]{0,64}") {
            let _ = parse(&text);
        }

        #[test]
        fn quoted_columns_are_unquoted(name in "[^\r\n]{0,12}", groups in "[a-z,:]{0,12}") {
            let line = format!("t,\"{}\",1,\"{groups}\"", name.replace('"', "\"\""));
            let users = parse(&line).unwrap();
            prop_assert_eq!(&users[0].1.name, &name);
        }
    }
}
