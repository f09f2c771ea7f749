//! Everything that an NBD server can send to the client: the handshake, then replies to requests.
#![cfg_attr(feature = "libfuzzer", no_main)]

hectare_fuzz::target!(|bytes: &[u8]| {
    let _ = hectare_nbd::digest(bytes);
});
