//! The metadata service itself, in this process, on an embedded key-value store and drives in files.

use super::TestService;
use crate::client::{Client, ClientOptions, Operator as _};
use crate::service::{ServiceHandle, ServiceOptions, start};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weir_config::{StoreAddress, StoreDurability, StoreMeta};
use weir_store::protocol::Donation;
use weir_store::{ClassName, Location};

pub struct RealService {
    folder: PathBuf,
    handle: Mutex<Option<ServiceHandle>>,
    /// Its socket in the folder.
    socket: Mutex<&'static str>,
}

impl RealService {
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("weir-client-real-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let service = Self { folder, handle: Mutex::new(None), socket: Mutex::new("s") };
        service.kill();
        let options = ClientOptions { allow_files: true, ..ClientOptions::default() };
        let client = Client::connect(&service.address(), options).unwrap();
        for sector in [512, 4096] {
            let path = service.folder.join(sector.to_string());
            std::fs::File::create(&path).and_then(|file| file.set_len(512 << 20)).unwrap();
            let target = format!("file:{}?sector={sector}", path.display());
            let class = ClassName::new("dram").unwrap();
            client.donate(Donation { target, class, location: Location::default(), overwrite: false }).unwrap();
        }
        service
    }

    /// It ends, and another one begins over the same metadata, at another address.
    pub fn moves(&self, socket: &'static str) {
        *self.socket.lock().unwrap() = socket;
        self.kill();
    }

    /// Where a service with that socket would be.
    pub fn address_of(&self, socket: &str) -> String {
        format!("unix:{}", self.folder.join(socket).display())
    }

    fn options(&self) -> ServiceOptions {
        ServiceOptions {
            meta: StoreMeta::Redb(self.folder.join("meta.redb")),
            durability: StoreDurability::Process,
            listen: vec![StoreAddress::Unix(self.folder.join(*self.socket.lock().unwrap()))],
            classes: vec!["dram".into()],
            block: 64 << 10,
            lease: Duration::from_secs(20),
            repair_after: None,
            tiering: weir_store::Tiering::default(),
            allow_files: true,
        }
    }
}

impl TestService for RealService {
    fn address(&self) -> String {
        self.address_of(*self.socket.lock().unwrap())
    }

    fn kill(&self) {
        let mut handle = self.handle.lock().unwrap();
        if let Some(handle) = handle.take() {
            handle.stop();
        }
        *handle = Some(start(self.options()).unwrap());
    }
}

impl Drop for RealService {
    fn drop(&mut self) {
        drop(self.handle.lock().unwrap().take());
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}
