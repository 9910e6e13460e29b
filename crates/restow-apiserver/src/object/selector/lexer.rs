//! The tokens of a label selector.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    End,
    Closed,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
    Word(String),
    /// An invalid token, and its error.
    Odd(String),
}

impl Token {
    /// The token in messages.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::End => "",
            Self::Closed => ")",
            Self::Comma => ",",
            Self::Not => "!",
            Self::DoubleEquals => "==",
            Self::Equals => "=",
            Self::Greater => ">",
            Self::In => "in",
            Self::Less => "<",
            Self::NotEquals => "!=",
            Self::NotIn => "notin",
            Self::Open => "(",
            Self::Word(text) | Self::Odd(text) => text,
        }
    }

    /// Turns a keyword into a word, where a key or a value is expected.
    pub(super) fn into_word(self) -> Self {
        match self {
            Self::In | Self::NotIn => Self::Word(self.text().to_owned()),
            other => other,
        }
    }
}

fn symbol(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::Closed,
        "," => Token::Comma,
        "!" => Token::Not,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        ">" => Token::Greater,
        "<" => Token::Less,
        "!=" => Token::NotEquals,
        "(" => Token::Open,
        _ => return None,
    })
}

fn is_special(letter: char) -> bool {
    matches!(letter, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\r' | '\n')
}

/// All tokens, the last of them `End`. A NUL ends the text, as it does for kube-apiserver.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut rest = text.split('\0').next().unwrap_or_default();
    let mut tokens = Vec::new();
    loop {
        rest = rest.trim_start_matches(is_blank);
        let (token, length) = match rest.chars().next() {
            None => break,
            Some(first) if is_special(first) => special(rest),
            Some(_) => word(rest),
        };
        tokens.push(token);
        rest = &rest[length..];
    }
    tokens.push(Token::End);
    tokens
}

fn word(rest: &str) -> (Token, usize) {
    let length = rest.find(|letter| is_special(letter) || is_blank(letter)).unwrap_or(rest.len());
    let token = match &rest[..length] {
        "in" => Token::In,
        "notin" => Token::NotIn,
        word => Token::Word(word.to_owned()),
    };
    (token, length)
}

/// The longest symbol at the start.
fn special(rest: &str) -> (Token, usize) {
    let mut longest = None;
    let run = rest.find(|letter| !is_special(letter)).unwrap_or(rest.len());
    for length in 1..=run {
        match symbol(&rest[..length]) {
            Some(token) => longest = Some((token, length)),
            None if longest.is_some() => break,
            None => {}
        }
    }
    longest.unwrap_or_else(|| (Token::Odd(format!("error expected: keyword found '{}'", &rest[..run])), run))
}
