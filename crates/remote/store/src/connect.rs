//! Makes the client of a store. Credentials come from the environment, as the library reads it: `AWS_...`,
//! `GOOGLE_...`, `AZURE_...`.

use crate::{Address, DirectoryStore, Error, Options, Place, Result};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use std::sync::{Arc, Once};
use std::time::Duration;

/// Longer waits for a connection mean that there is none.
const CONNECT: Duration = Duration::from_secs(10);
/// The library's limit for a whole request; ours is shorter, and knows how long the object is.
const LONGEST: Duration = Duration::from_secs(3600);
const LONGEST_TEXT: &str = "3600 seconds";

/// The client for the store of an address; no request is made.
///
/// # Errors
/// If the environment has values that don't fit, or a directory is missing.
pub(crate) fn connect(address: &Address, options: &Options) -> Result<Arc<dyn ObjectStore>> {
    // The library would choose none by itself. That another was chosen already is fine.
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    // Requests are repeated and counted above.
    let retry = RetryConfig { max_retries: 0, retry_timeout: options.patience, ..RetryConfig::default() };
    let client = ClientOptions::new().with_connect_timeout(CONNECT).with_timeout(LONGEST);
    let failed = |error: object_store::Error| {
        Error::Remote(format!(
            "the store can't be used: {}; credentials and settings come from the environment \
             (docs/remote.md)",
            crate::error::without_secrets(&error.to_string())
        ))
    };
    // Not `client` as a whole: that would undo what the environment asks for (such as plain HTTP).
    let longest = ClientConfigKey::Timeout;
    Ok(match &address.place {
        Place::S3(bucket) => {
            let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
            let builder =
                builder.with_config(AmazonS3ConfigKey::Client(longest), LONGEST_TEXT).with_retry(retry);
            Arc::new(builder.build().map_err(failed)?)
        }
        Place::Gcs(bucket) => {
            let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
            let builder =
                builder.with_config(GoogleConfigKey::Client(longest), LONGEST_TEXT).with_retry(retry);
            Arc::new(builder.build().map_err(failed)?)
        }
        Place::Azure(container) => {
            let builder = MicrosoftAzureBuilder::from_env().with_container_name(container);
            let builder =
                builder.with_config(AzureConfigKey::Client(longest), LONGEST_TEXT).with_retry(retry);
            Arc::new(builder.build().map_err(failed)?)
        }
        Place::Directory(directory) => Arc::new(DirectoryStore::open(directory, options.make_directory)?),
        Place::Web(host) => {
            let client = client.with_allow_http(host.starts_with("http://"));
            let builder = HttpBuilder::new().with_url(host).with_client_options(client).with_retry(retry);
            Arc::new(builder.build().map_err(failed)?)
        }
    })
}
