//! Encryption of a batch under a data key that Python has made, with salts that Python has drawn.

use headerware_wire::encrypt::{Encryptor, Salt, Statement};
use headerware_wire::{Headers, NotMine, Outcome, Record};

pub(crate) struct Encrypting {
    encryptor: Encryptor,
    passes_nulls: bool,
    /// The size of the latest value, if it was encrypted.
    latest: Option<usize>,
    records: usize,
    bytes: usize,
}

impl Encrypting {
    pub(crate) fn new(statement: &[u8], secret: &[u8], passes_nulls: bool) -> Result<Self, NotMine> {
        let secret = secret.try_into().map_err(|_| NotMine::Key)?;
        let encryptor = Encryptor::new(Statement::of(statement)?, secret)?;
        let (latest, records, bytes) = Default::default();
        Ok(Self { encryptor, passes_nulls, latest, records, bytes })
    }

    /// `salts` are those of the batch, and `index` is the record's place in it.
    pub(crate) fn on_send(
        &mut self, record: &Record<'_>, headers: &mut Headers<'_>, salts: &[i64], index: usize,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, NotMine> {
        self.latest = None;
        if record.value.is_none() && self.passes_nulls {
            return Ok(Outcome::Unchanged);
        }
        let salt = salt(salts, index).ok_or(NotMine::Missing)?;
        let outcome = self.encryptor.on_send(record, headers, &salt, out)?;
        self.latest = Some(record.value.map_or(0, <[u8]>::len));
        Ok(outcome)
    }

    /// Count the latest record, which all steps have taken.
    pub(crate) fn commit(&mut self) {
        if let Some(size) = self.latest.take() {
            self.records += 1;
            self.bytes += size;
        }
    }

    /// Return how many records were encrypted, and the bytes of their values.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.records, self.bytes)
    }

    pub(crate) fn forget(&mut self) {
        (self.records, self.bytes) = (0, 0);
    }
}

/// Return the salt of a record, which is three numbers.
fn salt(salts: &[i64], index: usize) -> Option<Salt> {
    let numbers: &[i64; 3] = salts.as_chunks().0.get(index)?;
    let mut salt = Salt::default();
    salt.as_chunks_mut().0.iter_mut().zip(numbers).for_each(|(part, number)| *part = number.to_le_bytes());
    Some(salt)
}
