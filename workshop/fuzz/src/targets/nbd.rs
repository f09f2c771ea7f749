//! Everything that an NBD server can send to the client: the handshake, then replies to requests.

pub(super) fn target(bytes: &[u8]) {
    let _ = hectare_nbd::digest(bytes);
}
