//! Paths as bytes: taken apart, put together, compared. Nothing here looks at a file.

use cowork_sys::Errno;
use std::ffi::CString;

/// Longest path that the kernel takes, with the NUL at its end.
pub(super) const PATH_MAX: usize = 4096;

/// A path before its last component, and that component.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Split<'a> {
    /// What is before; empty if nothing is.
    pub(super) folder: &'a [u8],
    /// The last component; empty for a path of slashes.
    pub(super) name: &'a [u8],
    /// Whether slashes follow it.
    pub(super) slash: bool,
}

/// Takes a path apart before its last component.
pub(super) fn split(path: &[u8]) -> Split<'_> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let (body, rest) = path.split_at_checked(end).unwrap_or((path, &[]));
    let start = body.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (folder, name) = body.split_at_checked(start).unwrap_or((&[], body));
    Split { folder, name, slash: !rest.is_empty() }
}

/// The components of a path, without empty ones and without `.`.
pub(super) fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".")
}

/// Where `rest` leads from `base` if nothing on the way is a link; `None` if it leads out.
pub(super) fn normal(base: &[u8], rest: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = components(base).collect();
    for part in components(rest) {
        if part == b".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join(&b'/'))
}

/// The path of `name` in `folder`.
pub(super) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, name].join(&b'/') }
}

/// What is below `folder` in `path`: empty if it is the same; `None` if it is elsewhere.
pub(super) fn below<'a>(path: &'a [u8], folder: &[u8]) -> Option<&'a [u8]> {
    if folder.is_empty() {
        return Some(path);
    }
    match path.strip_prefix(folder)? {
        [] => Some(&[]),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

/// What a link says, with what stood behind the link. A link that says nothing leads nowhere.
pub(super) fn led_on(mut target: Vec<u8>, behind: &[u8]) -> Vec<u8> {
    if !target.is_empty() {
        target.extend_from_slice(behind);
    }
    target
}

/// A path for the kernel. Nothing that came from it contains a NUL.
pub(super) fn for_kernel(path: &[u8]) -> Result<CString, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    CString::new(path).map_err(|_nul| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::{below, components, join, normal, split};

    #[test]
    fn a_path_is_split_before_its_last_component() {
        let check = |path: &str, folder: &str, name: &str, slash: bool| {
            let found = split(path.as_bytes());
            assert_eq!(
                (found.folder, found.name, found.slash),
                (folder.as_bytes(), name.as_bytes(), slash),
                "{path}"
            );
        };
        check("a", "", "a", false);
        check("a/", "", "a", true);
        check("/a", "/", "a", false);
        check("a/b//", "a/", "b", true);
        check("a//b", "a//", "b", false);
        check("/", "", "", true);
        check("", "", "", false);
        check("a/..", "a/", "..", false);
        check("a/.", "a/", ".", false);
    }

    #[test]
    fn a_path_without_links_is_computed() {
        let check = |base: &str, rest: &str, expected: Option<&str>| {
            let found = normal(base.as_bytes(), rest.as_bytes());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{base} {rest}");
        };
        check("", "a/b", Some("a/b"));
        check("a/b", "../c", Some("a/c"));
        check("a", "./x//y/", Some("a/x/y"));
        check("a", "..", Some(""));
        check("a", "../..", None);
        check("", "..", None);
    }

    #[test]
    fn what_is_below_a_folder_is_told_from_what_only_begins_alike() {
        assert_eq!(below(b"a/b/c", b"a/b"), Some(&b"c"[..]));
        assert_eq!(below(b"a/b", b"a/b"), Some(&b""[..]));
        assert_eq!(below(b"a/bc", b"a/b"), None);
        assert_eq!(below(b"a", b""), Some(&b"a"[..]));
    }

    #[test]
    fn components_leave_out_what_means_nothing() {
        let parts: Vec<_> = components(b"//a/./b/../c/").collect();
        assert_eq!(parts, [&b"a"[..], b"b", b"..", b"c"]);
        assert_eq!(join(b"", b"x"), b"x");
        assert_eq!(join(b"a", b"x"), b"a/x");
    }
}
