//! The primitives of Noise: X25519, BLAKE2s, and AES-256-GCM by the processor's instructions.
//!
//! snow has collections of these, but each brings unused ciphers and tables, and an agent must be small.

use std::sync::{Mutex, PoisonError};

use blake2::{Blake2s256, Digest};
use gantry_shared::secret::fill_random;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519 as X25519_KEYS, agree_ephemeral};
use ring::rand::SystemRandom;
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};

/// The pattern whose names are resolved here.
pub(super) const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_BLAKE2s";

/// The size of a seal.
pub(super) const TAG_BYTES: usize = 16;

const KEY_BYTES: usize = 32;

/// Resolves the names in a handshake's pattern.
pub(super) struct Primitives;

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(System))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        (*choice == DHChoice::Curve25519).then(|| Box::new(X25519::default()) as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        (*choice == HashChoice::Blake2s).then(|| Box::new(Blake2s::default()) as Box<dyn Hash>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        (*choice == CipherChoice::AESGCM).then(|| Box::new(AesGcm::default()) as Box<dyn Cipher>)
    }
}

/// The nonce of the message with this number. The caller must use each number once per key.
pub(super) fn build_nonce(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - size_of::<u64>()..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

struct System;

impl Random for System {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        fill_random(bytes).map_err(|_| Error::Rng)
    }
}

/// The keys of one handshake. Both sides of [`PATTERN`] have keys for this handshake alone, and use each once.
#[derive(Default)]
struct X25519 {
    private: Mutex<Option<EphemeralPrivateKey>>,
    public: [u8; KEY_BYTES],
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_BYTES
    }

    fn priv_len(&self) -> usize {
        KEY_BYTES
    }

    /// Patterns whose keys outlast a handshake set them; ours has none. [`Dh::dh`] fails afterwards.
    fn set(&mut self, _private: &[u8]) {
        *self = Self::default();
    }

    /// The kernel's random bytes are used, as from [`System`].
    fn generate(&mut self, _random: &mut dyn Random) -> Result<(), Error> {
        let private =
            EphemeralPrivateKey::generate(&X25519_KEYS, &SystemRandom::new()).map_err(|_| Error::Rng)?;
        let public = private.compute_public_key().map_err(|_| Error::Dh)?;
        self.public.copy_from_slice(public.as_ref());
        self.private = Mutex::new(Some(private));
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    /// The private key does not leave its library.
    fn privkey(&self) -> &[u8] {
        &[]
    }

    /// Works once for each generated key. Refuses public keys whose result is known to everybody.
    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let (public, _) = public.split_first_chunk::<KEY_BYTES>().ok_or(Error::Dh)?;
        let out = out.first_chunk_mut::<KEY_BYTES>().ok_or(Error::Dh)?;
        let private = self.private.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(Error::Dh)?;
        let public = UnparsedPublicKey::new(&X25519_KEYS, public);
        agree_ephemeral(private, &public, |shared| out.copy_from_slice(shared)).map_err(|_| Error::Dh)
    }
}

#[derive(Default)]
struct Blake2s(Blake2s256);

impl Hash for Blake2s {
    fn name(&self) -> &'static str {
        "BLAKE2s"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = Blake2s256::new();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        let hash = std::mem::take(&mut self.0).finalize();
        let length = hash.len().min(out.len());
        out[..length].copy_from_slice(&hash[..length]);
    }
}

/// None until it has its key.
#[derive(Default)]
struct AesGcm(Option<LessSafeKey>);

impl Cipher for AesGcm {
    fn name(&self) -> &'static str {
        "AESGCM"
    }

    fn set(&mut self, key: &[u8; KEY_BYTES]) {
        self.0 = UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new);
    }

    /// Returns 0 if there is no key or no room. No sealed text has that length.
    fn encrypt(&self, nonce: u64, known: &[u8], plain: &[u8], out: &mut [u8]) -> usize {
        let Some((body, rest)) = out.split_at_mut_checked(plain.len()) else { return 0 };
        let (Some(place), Some(key)) = (rest.first_chunk_mut::<TAG_BYTES>(), &self.0) else { return 0 };
        body.copy_from_slice(plain);
        match key.seal_in_place_separate_tag(build_nonce(nonce), Aad::from(known), body) {
            Ok(tag) => {
                place.copy_from_slice(tag.as_ref());
                plain.len() + TAG_BYTES
            }
            Err(_) => {
                body.fill(0);
                0
            }
        }
    }

    fn decrypt(&self, nonce: u64, known: &[u8], sealed: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        let key = self.0.as_ref().ok_or(Error::Decrypt)?;
        let mut own = Vec::new();
        // The seal is opened in place. `out` may have room for the plain text only.
        let place = match out.get_mut(..sealed.len()) {
            Some(place) => place,
            None => {
                own.resize(sealed.len(), 0);
                &mut own[..]
            }
        };
        place.copy_from_slice(sealed);
        let opened = key.open_in_place(build_nonce(nonce), Aad::from(known), place);
        let length = opened.map_err(|_| Error::Decrypt)?.len();
        if !own.is_empty() {
            out.get_mut(..length).ok_or(Error::Decrypt)?.copy_from_slice(&own[..length]);
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn generate() -> Box<dyn Dh> {
        let mut key = Primitives.resolve_dh(&DHChoice::Curve25519).unwrap();
        key.generate(&mut System).unwrap();
        key
    }

    #[test]
    fn two_keys_agree_once() {
        let (ours, theirs) = (generate(), generate());
        assert_ne!(ours.pubkey(), theirs.pubkey());
        let (mut here, mut there) = ([0; KEY_BYTES], [1; KEY_BYTES]);
        ours.dh(theirs.pubkey(), &mut here).unwrap();
        theirs.dh(ours.pubkey(), &mut there).unwrap();
        assert_eq!(here, there);
        assert!(ours.dh(theirs.pubkey(), &mut here).is_err(), "the key is used up");
    }

    #[test]
    fn a_public_key_that_cannot_be_one_is_refused() {
        let mut out = [0; KEY_BYTES];
        assert!(generate().dh(&[9; KEY_BYTES - 1], &mut out).is_err(), "it is too short");
        // The result would be 0 with every private key.
        assert!(generate().dh(&[0; KEY_BYTES], &mut out).is_err(), "it is the point 0");
        assert!(X25519::default().dh(&[9; KEY_BYTES], &mut out).is_err(), "there is no private key");
    }

    #[test]
    fn a_hash_is_the_one_that_others_compute() {
        let mut hash = Primitives.resolve_hash(&HashChoice::Blake2s).unwrap();
        let mut out = [0; 32];
        hash.input(b"left out");
        hash.reset();
        hash.input(b"a");
        hash.input(b"bc");
        hash.result(&mut out);
        // RFC 7693, appendix B.
        assert_eq!(to_hex(&out), "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982");
    }

    #[test]
    fn a_seal_is_the_one_that_others_compute_and_is_opened_where_there_is_room_and_where_there_is_not() {
        let mut cipher = AesGcm::default();
        let mut sealed = [7; 32];
        assert_eq!(cipher.encrypt(0, b"", &[0; 16], &mut sealed), 0, "it has no key");
        cipher.set(&[0; KEY_BYTES]);
        assert_eq!(cipher.encrypt(0, b"", &[0; 16], &mut sealed[..31]), 0, "it has no room");
        assert_eq!(cipher.encrypt(0, b"", &[0; 16], &mut sealed), 32);
        // The Galois/Counter Mode of Operation (McGrew and Viega), test case 14.
        assert_eq!(to_hex(&sealed), "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919");
        for room in [16, 32, 40] {
            let mut out = vec![1; room];
            assert_eq!(cipher.decrypt(0, b"", &sealed, &mut out).unwrap(), 16, "{room}");
            assert_eq!(out[..16], [0; 16]);
        }
        assert!(cipher.decrypt(0, b"", &sealed, &mut [0; 15]).is_err());
        assert!(cipher.decrypt(1, b"", &sealed, &mut [0; 32]).is_err());
        assert!(cipher.decrypt(0, b"x", &sealed, &mut [0; 32]).is_err());
        sealed[3] ^= 1;
        assert!(cipher.decrypt(0, b"", &sealed, &mut [0; 32]).is_err());
    }
}
