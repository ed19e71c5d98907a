//! Words for a shell.

/// A line that a shell reads as exactly these words.
pub fn line<W: AsRef<[u8]>>(words: impl IntoIterator<Item = W>) -> Vec<u8> {
    let mut line = Vec::new();
    for word in words {
        if !line.is_empty() {
            line.push(b' ');
        }
        push(&mut line, word.as_ref());
    }
    line
}

fn push(line: &mut Vec<u8>, word: &[u8]) {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_./:@+,-".contains(byte);
    let starts = word.first().is_some_and(plain);
    if starts && word.iter().all(|byte| plain(byte) || *byte == b'=') {
        line.extend(word);
        return;
    }
    line.push(b'\'');
    for byte in word {
        match byte {
            b'\'' => line.extend(b"'\"'\"'"),
            other => line.push(*other),
        }
    }
    line.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn words_are_quoted_where_a_shell_would_read_something_else() {
        for (words, expected) in [
            (&["echo", "a"][..], "echo a"),
            (&["echo", "a b"], "echo 'a b'"),
            (&["echo", ""], "echo ''"),
            (&["echo", "it's", "!x", "$HOME", "*"], "echo 'it'\"'\"'s' '!x' '$HOME' '*'"),
            (&["=ls", "A=b"], "'=ls' A=b"),
            (&["a\nb"], "'a\nb'"),
        ] {
            assert_eq!(String::from_utf8(line(words)).unwrap(), expected);
        }
    }
}
