//! Why an object store could not be used.

/// The outcome of a step with a store.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a store can't be used, or an address is none. Each is one line without the name of the address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is none.
    #[error("the address is wrong: {0}")]
    Address(&'static str),
    /// Another writer has it; says which, and what to do.
    #[error("{0}")]
    Busy(String),
    /// There is nothing by that name; says what to do.
    #[error("{0}")]
    Missing(String),
    /// What the store has is not what it should be.
    #[error("the volume is damaged: {0}")]
    Damaged(String),
    /// The store refused, or gave no answer.
    #[error("{0}")]
    Remote(String),
    /// The cache file can't be used.
    #[error("{0}")]
    Cache(String),
    /// The local log of unflushed writes can't be used.
    #[error("{0}")]
    Log(String),
}

impl Error {
    /// The reason of a device's error.
    pub(crate) fn reason(&self) -> hectare_device::Reason {
        match self {
            Self::Busy(text) => hectare_device::Reason::Busy(text.clone()),
            other => hectare_device::Reason::Remote(other.to_string()),
        }
    }
}

/// A store's text as one line without queries of addresses, which may be signatures, and without the
/// documents that services send with an error, but for their code and message.
pub(crate) fn without_secrets(text: &str) -> String {
    let Some((before, document)) = text.split_once("<?xml").or_else(|| text.split_once("<Error>")) else {
        return without_queries(text);
    };
    let of = |name: &str| {
        let (_, rest) = document.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0)
    };
    let parts = [Some(before), of("Code"), of("Message")];
    without_queries(&parts.into_iter().flatten().map(str::trim).collect::<Vec<_>>().join(" "))
}

/// A text as one line without what follows question marks.
fn without_queries(text: &str) -> String {
    let mut out = String::new();
    let mut in_query = false;
    for letter in text.chars().take(2000) {
        match letter {
            '?' => {
                in_query = true;
                out.push_str("?...");
            }
            ' ' | '"' | '\'' | ')' | '\n' | '\t' if in_query => {
                in_query = false;
                out.push(if letter.is_control() { ' ' } else { letter });
            }
            _ if in_query => {}
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_cut_out_of_messages() {
        let text = "GET https://h/x?sig=abc%2F&se=1 in 3s:\nno (https://h/?token=t)";
        assert_eq!(without_secrets(text), "GET https://h/x?... in 3s: no (https://h/?...)");
        let text = "status code: 403: <?xml?>\n<Error><Code>Denied</Code><Message>No.</Message>\
                    <StringToSign>secret</StringToSign></Error>";
        assert_eq!(without_secrets(text), "status code: 403: Denied No.");
    }
}
