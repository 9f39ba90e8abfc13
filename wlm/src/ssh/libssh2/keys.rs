//! Parses keys: type and text of public ones, and the unencrypted part of a private key's file. Source: RFC 4253
//! section 6.6, OpenSSH's PROTOCOL.key.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The maximum size of a key file.
pub(crate) const MAX_KEY_FILE_BYTES: u64 = 64 * 1024;

/// Encodes base64 without padding, as fingerprints have it.
pub(crate) fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let number = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for place in 0..=chunk.len() {
            let digit = (number >> (18 - 6 * place)) & 63;
            text.push(char::from(ALPHABET[digit as usize]));
        }
    }
    text
}

/// Decodes base64, with or without line breaks and padding.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=');
    let (mut bytes, mut number, mut bits) = (Vec::new(), 0_u32, 0);
    for digit in digits {
        let value = ALPHABET.iter().position(|letter| *letter == digit)?;
        number = (number << 6 | u32::try_from(value).ok()?) & 0xfff_ffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(number >> bits & 0xff).ok()?);
        }
    }
    Some(bytes)
}

/// The first string in the bytes, and the rest.
fn take_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

/// The type in a public key.
pub(crate) fn type_of(blob: &[u8]) -> Option<&str> {
    std::str::from_utf8(take_string(blob)?.0).ok()
}

/// OpenSSH's short name of a type, as its messages have it.
pub(crate) fn short_name(key_type: &str) -> &'static str {
    match key_type {
        "ssh-ed25519" => "ED25519",
        "ssh-rsa" => "RSA",
        "ssh-dss" => "DSA",
        other if other.starts_with("ecdsa-") => "ECDSA",
        _ => "unknown",
    }
}

/// The key type of a signature algorithm.
pub(crate) fn type_of_algorithm(algorithm: &str) -> &str {
    match algorithm {
        "rsa-sha2-256" | "rsa-sha2-512" => "ssh-rsa",
        other => other,
    }
}

/// Whether only the OpenSSH client supports the key: a certificate, or a key on a security key.
pub(crate) fn is_foreign(key_type: &str) -> bool {
    key_type.contains("-cert-v") || key_type.starts_with("sk-") || key_type.starts_with("webauthn-")
}

/// The part of a private key's file that needs no passphrase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyFile {
    /// It needs a passphrase.
    pub(crate) is_locked: bool,
    /// The public key, if the file contains it.
    pub(crate) public: Option<Vec<u8>>,
}

/// Parses a private key's file. `None`: it is not one.
pub(crate) fn parse_private(text: &str) -> Option<KeyFile> {
    let body = text.split_once("-----BEGIN ")?.1;
    let (kind, body) = body.split_once("-----")?;
    let body = body.split_once("-----END").map(|(body, _)| body)?;
    if kind != "OPENSSH PRIVATE KEY" {
        let is_locked = kind.contains("ENCRYPTED") || body.contains("ENCRYPTED");
        return Some(KeyFile { is_locked, public: None });
    }
    let bytes = from_base64(body)?;
    let rest = bytes.strip_prefix(b"openssh-key-v1\0")?;
    let (cipher, rest) = take_string(rest)?;
    let (_, rest) = take_string(rest)?;
    let (_, rest) = take_string(rest)?;
    let (_, rest) = rest.split_first_chunk::<4>()?;
    let (public, _) = take_string(rest)?;
    Some(KeyFile { is_locked: cipher != b"none", public: Some(public.to_vec()) })
}

/// The key in a line of a public key's file.
pub(crate) fn parse_public(text: &str) -> Option<Vec<u8>> {
    from_base64(text.split_whitespace().nth(1)?).filter(|blob| type_of(blob).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by ssh-keygen for this test only.
    const PRIVATE: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\n\
        b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n\
        QyNTUxOQAAACDqWVe1CSj0EvJDX3/xUR6JoyulbC2mRt2YoF/d4KvdOgAAAJBIdQVaSHUF\n\
        -----END OPENSSH PRIVATE KEY-----\n";
    const PUBLIC: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOpZV7UJKPQS8kNff/FRHomjK6VsLaZG3ZigX93gq906 me@here\n";

    #[test]
    fn base64_both_ways() {
        let check = |bytes: &[u8], text: &str| {
            assert_eq!(to_base64(bytes), text.trim_end_matches('='));
            assert_eq!(from_base64(text).unwrap(), bytes);
        };
        // RFC 4648 section 10.
        check(b"", "");
        check(b"f", "Zg==");
        check(b"fo", "Zm8=");
        check(b"foo", "Zm9v");
        check(b"foobar", "Zm9vYmFy");
        check(&[0xff, 0xfe, 0xfb, 0xef], "//777w==");
        assert_eq!(from_base64("a-b"), None);
    }

    #[test]
    fn a_private_key_tells_its_public_one() {
        let file = parse_private(PRIVATE).unwrap();
        let public = parse_public(PUBLIC).unwrap();
        assert_eq!(file, KeyFile { is_locked: false, public: Some(public.clone()) });
        assert_eq!(type_of(&public), Some("ssh-ed25519"));
    }

    #[test]
    fn files_that_are_locked_broken_or_something_else() {
        let locked =
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nAAAA\n-----END RSA PRIVATE KEY-----";
        assert_eq!(parse_private(locked), Some(KeyFile { is_locked: true, public: None }));
        let plain = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----";
        assert_eq!(parse_private(plain), Some(KeyFile { is_locked: false, public: None }));
        for text in ["", "ssh-ed25519 AAAA", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END"] {
            assert_eq!(parse_private(text), None, "{text}");
        }
        assert_eq!((parse_public("ssh-rsa"), type_of(&[0, 0, 0, 9, b'a'])), (None, None));
        assert!(is_foreign("sk-ssh-ed25519@openssh.com") && is_foreign("ssh-rsa-cert-v01@openssh.com"));
    }
}
