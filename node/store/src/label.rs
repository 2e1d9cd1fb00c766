//! The label of a donated namespace: its first 4 KiB say whose it is, so that a stranger's, another store's or a swapped one is refused.

use crate::tier::{LABEL_BYTES, LabelCheck};
use std::sync::Arc;
use weir_spec::crc32c::crc32c;
use weir_store::NamespaceId;
use weir_store::members::ContentLabel;
use weir_store::service::LabelFound;

/// How a label begins.
const MAGIC: [u8; 8] = *b"WEIRDISK";

/// The version of its layout.
const VERSION: u32 = 1;

/// Bytes before the checksum.
const BODY: usize = 44;

/// The label's bytes.
pub fn encode(store: u64, namespace: NamespaceId, content: ContentLabel) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LABEL_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&store.to_le_bytes());
    bytes.extend_from_slice(&namespace.get().to_le_bytes());
    bytes.extend_from_slice(&content.0.to_le_bytes());
    let sum = crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.resize(LABEL_BYTES, 0);
    bytes
}

/// What the first bytes of a namespace are. A label of another version is something foreign.
pub fn decode(bytes: &[u8]) -> LabelFound {
    if bytes.iter().all(|byte| *byte == 0) {
        return LabelFound::Blank;
    }
    label(bytes).unwrap_or(LabelFound::Foreign)
}

fn label(bytes: &[u8]) -> Option<LabelFound> {
    let (body, rest) = bytes.split_at_checked(BODY)?;
    let sum = u32::from_le_bytes(*rest.first_chunk()?);
    let is_one = body.starts_with(&MAGIC) && body.get(8..12)? == VERSION.to_le_bytes() && crc32c(body) == sum;
    is_one.then_some(())?;
    Some(LabelFound::Label {
        store: u64::from_le_bytes(body.get(12..20)?.try_into().ok()?),
        namespace: NamespaceId(u64::from_le_bytes(body.get(20..28)?.try_into().ok()?)),
        content: ContentLabel(u128::from_le_bytes(body.get(28..44)?.try_into().ok()?)),
    })
}

/// Lets in the namespace that has this label, and no other.
pub fn check(store: u64, namespace: NamespaceId, content: ContentLabel) -> LabelCheck {
    Arc::new(move |bytes: &[u8]| match decode(bytes) {
        found if found == LabelFound::Label { store, namespace, content } => Ok(()),
        LabelFound::Blank => Err(format!("namespace {namespace} is empty: what the store had on it is lost")),
        LabelFound::Foreign => Err(format!("something that is not namespace {namespace} of the store answers there")),
        LabelFound::Label { .. } => Err(format!("another namespace than {namespace} of the store answers there")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let bytes = encode(0x0102, NamespaceId(3), ContentLabel(5));
        let hex: String = bytes[..BODY].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "574549524449534b01000000020100000000000003000000000000000500000000000000".to_owned() + "0000000000000000"
        );
        assert_eq!((bytes.len(), &bytes[BODY + 4..]), (LABEL_BYTES, &[0; LABEL_BYTES - BODY - 4][..]));
        let found = LabelFound::Label { store: 0x0102, namespace: NamespaceId(3), content: ContentLabel(5) };
        assert_eq!(
            (decode(&bytes), decode(&[0; LABEL_BYTES]), decode(&[])),
            (found, LabelFound::Blank, LabelFound::Blank)
        );
        for at in 0..BODY + 4 {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(decode(&bad), LabelFound::Foreign, "byte {at}");
        }
        assert_eq!(decode(&bytes[..BODY]), LabelFound::Foreign);
    }

    #[test]
    fn others_are_not_let_in() {
        let check = check(1, NamespaceId(2), ContentLabel(3));
        assert_eq!(check(&encode(1, NamespaceId(2), ContentLabel(3))), Ok(()));
        let others = [
            encode(2, NamespaceId(2), ContentLabel(3)),
            encode(1, NamespaceId(1), ContentLabel(3)),
            encode(1, NamespaceId(2), ContentLabel(4)),
            vec![7; 4096],
        ];
        assert!(others.iter().all(|bytes| check(bytes).is_err_and(|why| why.contains("answers there"))));
        assert!(check(&[0; LABEL_BYTES]).is_err_and(|why| why.contains("lost")));
    }
}
