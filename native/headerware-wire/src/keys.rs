//! Keys that sign and verify ([spec/signature.md](../../../spec/signature.md#algorithms),
//! [spec/keyring.md](../../../spec/keyring.md)). A key is overwritten when it is dropped.

use ed25519_dalek::Signer as _;
use ring::hmac::HMAC_SHA256;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

use crate::NotMine;
use crate::hashing::Hmac;

/// An algorithm, which belongs to a key. RSA is left to the complete implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    HmacSha256,
    Ed25519,
    EcdsaP256,
}

impl Algorithm {
    pub fn of(name: &str) -> Result<Self, NotMine> {
        [Self::HmacSha256, Self::Ed25519, Self::EcdsaP256]
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or(NotMine::Unsupported)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::HmacSha256 => "hmac-sha256",
            Self::Ed25519 => "ed25519",
            Self::EcdsaP256 => "ecdsa-p256",
        }
    }
}

pub struct SigningKey(Private);

enum Private {
    Hmac(Hmac),
    Ed25519(Box<ed25519_dalek::SigningKey>),
    P256(Box<p256::ecdsa::SigningKey>),
}

impl SigningKey {
    /// Make a key of an HMAC secret, or of a private half as a keyring has it.
    pub fn new(algorithm: Algorithm, private: &[u8]) -> Result<Self, NotMine> {
        refuse_placeholder(private)?;
        Ok(Self(match algorithm {
            Algorithm::HmacSha256 => Private::Hmac(keyed_hmac(private)?),
            Algorithm::Ed25519 => {
                let private = private.try_into().map_err(|_| NotMine::Key)?;
                Private::Ed25519(Box::new(ed25519_dalek::SigningKey::from_bytes(private)))
            }
            Algorithm::EcdsaP256 if private.len() == 32 => {
                let key = p256::ecdsa::SigningKey::from_slice(private).map_err(|_| NotMine::Key)?;
                Private::P256(Box::new(key))
            }
            Algorithm::EcdsaP256 => return Err(NotMine::Key),
        }))
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        match self.0 {
            Private::Hmac(_) => Algorithm::HmacSha256,
            Private::Ed25519(_) => Algorithm::Ed25519,
            Private::P256(_) => Algorithm::EcdsaP256,
        }
    }

    pub(crate) fn sign(&self, message: &[u8], out: &mut Vec<u8>) -> Result<(), NotMine> {
        match &self.0 {
            Private::Hmac(keyed) => {
                out.extend_from_slice(keyed.of(&[message]).as_ref());
            }
            Private::Ed25519(key) => out.extend_from_slice(&key.sign(message).to_bytes()),
            Private::P256(key) => {
                let signature: p256::ecdsa::Signature = key.try_sign(message).map_err(|_| NotMine::Key)?;
                out.extend_from_slice(&signature.normalize_s().to_bytes());
            }
        }
        Ok(())
    }
}

pub struct VerifyingKey(Public);

enum Public {
    Hmac(Hmac),
    Ed25519(Box<ed25519_dalek::VerifyingKey>),
    P256(UnparsedPublicKey<[u8; 65]>),
}

impl VerifyingKey {
    /// Make a key of an HMAC secret, or of a public half as a keyring has it.
    pub fn new(algorithm: Algorithm, public: &[u8]) -> Result<Self, NotMine> {
        Ok(Self(match algorithm {
            Algorithm::HmacSha256 => {
                refuse_placeholder(public)?;
                Public::Hmac(keyed_hmac(public)?)
            }
            Algorithm::Ed25519 => {
                let public = public.try_into().map_err(|_| NotMine::Key)?;
                let key = ed25519_dalek::VerifyingKey::from_bytes(public).map_err(|_| NotMine::Key)?;
                if key.is_weak() {
                    return Err(NotMine::Key);
                }
                Public::Ed25519(Box::new(key))
            }
            Algorithm::EcdsaP256 => {
                let point: [u8; 65] = public.try_into().map_err(|_| NotMine::Key)?;
                p256::ecdsa::VerifyingKey::from_sec1_bytes(&point).map_err(|_| NotMine::Key)?;
                Public::P256(UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point))
            }
        }))
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        match self.0 {
            Public::Hmac(_) => Algorithm::HmacSha256,
            Public::Ed25519(_) => Algorithm::Ed25519,
            Public::P256(_) => Algorithm::EcdsaP256,
        }
    }

    pub(crate) fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), NotMine> {
        let fits = match &self.0 {
            Public::Hmac(keyed) => keyed.verify(message, signature),
            // As OpenSSL: `s` is below the order, the equation has no cofactor, and `R` is compared as bytes.
            Public::Ed25519(key) => ed25519_dalek::Signature::from_slice(signature)
                .is_ok_and(|signature| ed25519_dalek::Verifier::verify(&**key, message, &signature).is_ok()),
            Public::P256(key) => is_low(signature) && key.verify(message, signature).is_ok(),
        };
        if fits { Ok(()) } else { Err(NotMine::Forged) }
    }
}

fn keyed_hmac(secret: &[u8]) -> Result<Hmac, NotMine> {
    if !(32..=1024).contains(&secret.len()) {
        return Err(NotMine::Key);
    }
    Ok(Hmac::new(HMAC_SHA256, secret))
}

/// Refuse secrets with fewer than 8 different bytes.
fn refuse_placeholder(secret: &[u8]) -> Result<(), NotMine> {
    let mut seen = [false; 256];
    for &byte in secret {
        if let Some(seen) = seen.get_mut(usize::from(byte)) {
            *seen = true;
        }
    }
    let different = seen.iter().filter(|&&seen| seen).count();
    zeroize::Zeroize::zeroize(&mut seen);
    if different < 8 { Err(NotMine::Key) } else { Ok(()) }
}

/// Return whether the `s` of a signature by P-256 is the lower of its two values.
fn is_low(signature: &[u8]) -> bool {
    const HALF_ORDER: [u8; 32] = [
        0x7f, 0xff, 0xff, 0xff, 0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xde, 0x73,
        0x7d, 0x56, 0xd3, 0x8b, 0xcf, 0x42, 0x79, 0xdc, 0xe5, 0x61, 0x7e, 0x31, 0x92, 0xa8,
    ];
    signature.split_at_checked(32).is_some_and(|(_, s)| s <= &HALF_ORDER[..])
}
