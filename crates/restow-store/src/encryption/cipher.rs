//! The ciphers, each with the layout in which kube-apiserver stores its bytes.

use std::sync::Arc;

use aes::{Aes128, Aes192, Aes256};
use aes_gcm::{
    AesGcm, KeyInit,
    aead::{Aead, Payload},
};
use cbc::cipher::{
    BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit,
    block_padding::Pkcs7,
    consts::{U12, U16},
};
use crypto_secretbox::{
    XSalsa20Poly1305,
    aead::{Aead as _, KeyInit as _},
};
use secrecy::zeroize::Zeroizing;

/// A cipher with its key.
pub(super) trait Cipher: Send + Sync {
    /// Appends the encrypted bytes; `None` if the system has no random bytes.
    fn encrypt(&self, path: &[u8], plain: &[u8], encrypted: &mut Vec<u8>) -> Option<()>;

    /// Returns the plain bytes; `None` if another key or path was used.
    fn decrypt(&self, path: &[u8], encrypted: &[u8]) -> Option<Vec<u8>>;
}

/// AES-CBC: the initialization vector, then blocks with PKCS#7 padding.
struct Cbc<A>(A);

/// AES-GCM: a nonce, then the text and its tag. The path is authenticated too.
struct Gcm<A>(AesGcm<A, U12>);

/// NaCl's secretbox: a nonce, then the tag and the text.
struct Secretbox(XSalsa20Poly1305);

/// AES-CBC with a key of 16, 24 or 32 bytes.
pub(super) fn aescbc(key: &[u8]) -> Option<Arc<dyn Cipher>> {
    Some(match key.len() {
        16 => Arc::new(Cbc(Aes128::new_from_slice(key).ok()?)),
        24 => Arc::new(Cbc(Aes192::new_from_slice(key).ok()?)),
        _ => Arc::new(Cbc(Aes256::new_from_slice(key).ok()?)),
    })
}

/// AES-GCM with a key of 16, 24 or 32 bytes.
pub(super) fn aesgcm(key: &[u8]) -> Option<Arc<dyn Cipher>> {
    Some(match key.len() {
        16 => Arc::new(Gcm(AesGcm::<Aes128, U12>::new_from_slice(key).ok()?)),
        24 => Arc::new(Gcm(AesGcm::<Aes192, U12>::new_from_slice(key).ok()?)),
        _ => Arc::new(Gcm(AesGcm::<Aes256, U12>::new_from_slice(key).ok()?)),
    })
}

/// A KMS plugin, which is not asked: nothing is encrypted or decrypted.
struct Plugin;

/// A KMS plugin that is known only by the prefix of its values.
pub(super) fn plugin() -> Arc<dyn Cipher> {
    Arc::new(Plugin)
}

impl Cipher for Plugin {
    fn encrypt(&self, _path: &[u8], _plain: &[u8], _encrypted: &mut Vec<u8>) -> Option<()> {
        None
    }

    fn decrypt(&self, _path: &[u8], _encrypted: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Secretbox with a key of 32 bytes.
pub(super) fn secretbox(key: &[u8]) -> Option<Arc<dyn Cipher>> {
    Some(Arc::new(Secretbox(XSalsa20Poly1305::new_from_slice(key).ok()?)))
}

impl<A> Cipher for Cbc<A>
where
    A: BlockCipherEncrypt<BlockSize = U16> + BlockCipherDecrypt + Clone + Send + Sync,
{
    fn encrypt(&self, _path: &[u8], plain: &[u8], encrypted: &mut Vec<u8>) -> Option<()> {
        let vector = random::<16>()?;
        let mode = cbc::Encryptor::inner_iv_init(self.0.clone(), &vector.into());
        encrypted.extend_from_slice(&vector);
        encrypted.extend_from_slice(&mode.encrypt_padded_vec::<Pkcs7>(plain));
        Some(())
    }

    fn decrypt(&self, _path: &[u8], encrypted: &[u8]) -> Option<Vec<u8>> {
        let (vector, blocks) = encrypted.split_first_chunk::<16>()?;
        let mode = cbc::Decryptor::inner_iv_init(self.0.clone(), vector.into());
        // Wiped if the padding is wrong.
        let mut plain = Zeroizing::new(blocks.to_vec());
        let length = mode.decrypt_padded::<Pkcs7>(&mut plain).ok()?.len();
        plain.truncate(length);
        Some(std::mem::take(&mut plain))
    }
}

impl<A> Cipher for Gcm<A>
where
    AesGcm<A, U12>: Aead<NonceSize = U12> + Send + Sync,
{
    fn encrypt(&self, path: &[u8], plain: &[u8], encrypted: &mut Vec<u8>) -> Option<()> {
        let nonce = random::<12>()?;
        let text = self.0.encrypt(&nonce.into(), Payload { msg: plain, aad: path }).ok()?;
        encrypted.extend_from_slice(&nonce);
        encrypted.extend_from_slice(&text);
        Some(())
    }

    fn decrypt(&self, path: &[u8], encrypted: &[u8]) -> Option<Vec<u8>> {
        let (nonce, text) = encrypted.split_first_chunk::<12>()?;
        self.0.decrypt(nonce.into(), Payload { msg: text, aad: path }).ok()
    }
}

impl Cipher for Secretbox {
    fn encrypt(&self, _path: &[u8], plain: &[u8], encrypted: &mut Vec<u8>) -> Option<()> {
        let nonce = random::<24>()?;
        let text = self.0.encrypt(&nonce.into(), plain).ok()?;
        encrypted.extend_from_slice(&nonce);
        encrypted.extend_from_slice(&text);
        Some(())
    }

    fn decrypt(&self, _path: &[u8], encrypted: &[u8]) -> Option<Vec<u8>> {
        let (nonce, text) = encrypted.split_first_chunk::<24>()?;
        self.0.decrypt(nonce.into(), text).ok()
    }
}

fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes)
}
