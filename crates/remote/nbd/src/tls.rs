//! TLS on a connection, by the crate `rustls` with `ring`: what each side has to show and to verify, and the state
//! of a connection that several threads share.
//!
//! A client verifies the server's certificate and name, always: there is no switch to leave it out. A server asks
//! its clients for certificates if it was given the authorities that sign them.
//!
//! The state of a connection is under one lock, which nobody holds while waiting for the socket: the thread that
//! reads takes bytes from the socket first, and those that write encrypt under the lock and send afterwards, one
//! after the other. What the protocol itself wants to send later (answers to changes of keys) goes with the
//! next write, so that reading never waits for writing.
//!
//! Hazard: bytes that came before the handshake must not count as if they had come after it. The handshake of
//! NBD reads no byte more than its messages have, and everything after its last message goes through here.

use crate::{Error, Result};
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};
use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

/// Ciphertext that is read from the socket at once.
const INCOMING_LEN: usize = 1 << 16;
/// Ciphertext that is collected before it is sent.
const OUTGOING_LEN: usize = 1 << 18;

/// What a client shows and verifies.
#[derive(Clone)]
pub struct TlsClient(Arc<ClientConfig>);

/// What a server shows and verifies.
#[derive(Clone)]
pub struct TlsServer(Arc<ServerConfig>);

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsClient")
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn refused(what: impl fmt::Display) -> Error {
    Error::Refused(what.to_string())
}

impl TlsClient {
    /// A client that trusts the authorities of a file (PEM), or else those of the system, and shows a certificate
    /// with its key, if there is one.
    ///
    /// # Errors
    /// If a file can't be read, or there are no authorities.
    pub fn new(authorities: Option<&Path>, identity: Option<(&Path, &Path)>) -> Result<Self> {
        let roots = match authorities {
            Some(file) => roots_of(file)?,
            None => roots_of_system()?,
        };
        let config = ClientConfig::builder_with_provider(provider());
        let config =
            config.with_safe_default_protocol_versions().map_err(refused)?.with_root_certificates(roots);
        let config = match identity {
            Some((certificate, key)) => {
                config.with_client_auth_cert(chain_of(certificate)?, key_of(key)?).map_err(|error| {
                    refused(format_args!("the certificate or its key can't be used: {error}"))
                })?
            }
            None => config.with_no_client_auth(),
        };
        Ok(Self(Arc::new(config)))
    }

    /// Shakes hands on a connection with the server of that name.
    pub(crate) fn connect(&self, name: &str, socket: &mut (impl Read + Write)) -> Result<Tls> {
        let server = ServerName::try_from(name.to_owned()).map_err(|_| {
            Error::Address("the host is no name that a certificate can have; see tls-hostname")
        })?;
        let mut connection = ClientConnection::new(Arc::clone(&self.0), server).map_err(refused)?;
        shake(|| connection.complete_io(socket).map(drop), "the server")?;
        Ok(Tls::new(connection.into()))
    }
}

impl TlsServer {
    /// A server that shows a certificate (PEM, with those between it and the authority), and wants certificates of
    /// its clients from the authorities of a file, if there is one.
    ///
    /// # Errors
    /// If a file can't be read, or the key is not that of the certificate.
    pub fn new(certificate: &Path, key: &Path, clients: Option<&Path>) -> Result<Self> {
        let config = ServerConfig::builder_with_provider(provider());
        let config = config.with_safe_default_protocol_versions().map_err(refused)?;
        let config = match clients {
            Some(file) => {
                let roots = Arc::new(roots_of(file)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
                config.with_client_cert_verifier(verifier.map_err(refused)?)
            }
            None => config.with_no_client_auth(),
        };
        let config = config
            .with_single_cert(chain_of(certificate)?, key_of(key)?)
            .map_err(|error| refused(format_args!("the certificate or its key can't be used: {error}")))?;
        Ok(Self(Arc::new(config)))
    }

    /// Shakes hands on a connection with a client.
    pub(crate) fn accept(&self, socket: &mut (impl Read + Write)) -> Result<Tls> {
        let mut connection = ServerConnection::new(Arc::clone(&self.0)).map_err(refused)?;
        shake(|| connection.complete_io(socket).map(drop), "the client")?;
        Ok(Tls::new(connection.into()))
    }
}

/// Does a handshake, whose failure is put in words.
fn shake(mut deed: impl FnMut() -> io::Result<()>, who: &str) -> Result<()> {
    deed().map_err(|error| match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(reason) => refused(format_args!("TLS with {who} failed: {}", one_line(reason))),
        None => Error::Io(error),
    })
}

/// The reason with what to do, on one line; a part of it may be a stranger's.
fn one_line(reason: &rustls::Error) -> String {
    use rustls::CertificateError as Certificate;
    let advice = match reason {
        rustls::Error::InvalidCertificate(
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. },
        ) => " (?tls-hostname= in the address names another host)",
        rustls::Error::InvalidCertificate(
            Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. },
        ) => "",
        // An authority that is not known, or known by its name only.
        rustls::Error::InvalidCertificate(_) => " (--tls-ca names who is trusted)",
        _ => "",
    };
    let text: String = reason.to_string().chars().filter(|c| !c.is_control()).take(300).collect();
    text + advice
}

fn file_failed(file: &Path, error: &rustls::pki_types::pem::Error) -> Error {
    let name: String = file.to_string_lossy().escape_debug().to_string();
    refused(match error {
        rustls::pki_types::pem::Error::Io(error) => format!("{name}: {}", crate::error::reason(error)),
        rustls::pki_types::pem::Error::NoItemsFound => format!("{name}: it has nothing of that kind in PEM"),
        _ => format!("{name}: it is no PEM: {error}"),
    })
}

fn chain_of(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let failed = |error| file_failed(file, &error);
    let found = CertificateDer::pem_file_iter(file).map_err(failed)?;
    let chain = found.collect::<std::result::Result<Vec<_>, _>>().map_err(failed)?;
    if chain.is_empty() {
        return Err(file_failed(file, &rustls::pki_types::pem::Error::NoItemsFound));
    }
    Ok(chain)
}

fn key_of(file: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| file_failed(file, &error))
}

fn roots_of(file: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in chain_of(file)? {
        let failed = |error| refused(format_args!("{}: {error}", file.to_string_lossy().escape_debug()));
        roots.add(certificate).map_err(failed)?;
    }
    Ok(roots)
}

fn roots_of_system() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // Some of the system's may be of a kind that is not known here.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(refused("this system has no certificates of authorities: name a file with --tls-ca"));
    }
    Ok(roots)
}

/// The state of a connection after the handshake of TLS.
pub(crate) struct Tls {
    state: Mutex<Connection>,
    /// Ciphertext that was read and not decrypted yet: the buffer, and which part of it.
    incoming: Mutex<(Vec<u8>, std::ops::Range<usize>)>,
    /// Ciphertext on its way; held while it is sent.
    outgoing: Mutex<Vec<u8>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    fn new(state: Connection) -> Self {
        Self { state: Mutex::new(state), incoming: Mutex::default(), outgoing: Mutex::default() }
    }

    /// Reads what was decrypted, or else from the socket. The end of the connection reads as the end, also
    /// without the farewell of TLS: messages have their lengths.
    pub(crate) fn read(&self, socket: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
        let mut incoming = self.incoming.lock();
        let (bytes, part) = &mut *incoming;
        loop {
            let read = self.state.lock().reader().read(buf);
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            if part.start == part.end {
                bytes.resize(INCOMING_LEN, 0);
                *part = 0..socket.read(bytes)?;
                if part.start == part.end {
                    return Ok(0);
                }
            }
            let mut state = self.state.lock();
            let mut rest = &bytes[part.clone()];
            let took = state.read_tls(&mut rest)?;
            part.start += took;
            state.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if took == 0 {
                return Ok(0);
            }
        }
    }

    /// Writes all of some buffers.
    pub(crate) fn write_all(&self, socket: &mut impl Write, parts: &[&[u8]]) -> io::Result<()> {
        let mut outgoing = self.outgoing.lock();
        outgoing.clear();
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                {
                    let mut state = self.state.lock();
                    let taken = state.writer().write(rest)?;
                    rest = &rest[taken..];
                    while state.wants_write() {
                        let _ = state.write_tls(&mut *outgoing)?;
                    }
                }
                if outgoing.len() >= OUTGOING_LEN {
                    socket.write_all(&outgoing)?;
                    outgoing.clear();
                }
            }
        }
        socket.write_all(&outgoing)
    }
}
