//! Namespaces in files, and targets that are not there.

use super::{BlockingNamespace, NamespaceUrl, TierOptions};
use std::sync::Arc;
use std::time::Duration;

fn options() -> TierOptions {
    TierOptions { allow_files: true, timeout: Duration::from_millis(200), ..TierOptions::default() }
}

#[test]
fn a_file_is_a_namespace() {
    let dir = std::env::temp_dir().join(format!("weir-tier-{}", std::process::id()));
    std::fs::write(&dir, vec![7; 1 << 20]).unwrap();
    let url = format!("file:{}?sector=512", dir.display());
    let mut namespace = BlockingNamespace::open(&url, options()).unwrap();
    assert_eq!((namespace.geometry().sector, namespace.geometry().bytes), (512, 1 << 20));
    namespace.write(1024, &[9; 512]).unwrap();
    namespace.flush().unwrap();
    let mut read = [0; 1536];
    namespace.read(512, &mut read).unwrap();
    assert_eq!((read[0], read[512], read[1024]), (7, 9, 7));
    assert!(namespace.write(1, &[0; 512]).is_err(), "no whole sector");
    assert!(namespace.read(1 << 20, &mut read).is_err(), "behind its end");
    let label = TierOptions {
        label: Some(Arc::new(|first: &[u8]| if first[0] == 7 { Err("it is a stranger's".into()) } else { Ok(()) })),
        ..options()
    };
    assert!(BlockingNamespace::open(&url, label).unwrap_err().to_string().contains("it is a stranger's"));
    let closed = TierOptions { allow_files: false, ..options() };
    assert!(BlockingNamespace::open(&url, closed).unwrap_err().to_string().contains("not let in"));
    std::fs::remove_file(&dir).unwrap();
}

#[test]
fn a_target_that_is_not_there_is_told_in_time() {
    let url = "nvme-tcp://127.0.0.1:1/nqn.2026-11.io.weir:none?ns=1";
    let begun = std::time::Instant::now();
    let error = BlockingNamespace::open(url, options()).unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1") && begun.elapsed() < Duration::from_secs(20), "{error}");
}

#[test]
fn urls() {
    for bad in ["", "file:", "file:/a?sector=1024", "file:/a?x=1", "vfio-user:/a", "nvme-tcp://h/nqn.x"] {
        assert!(NamespaceUrl::parse(bad).is_err(), "{bad}");
    }
    let file = NamespaceUrl::parse("file:/a").unwrap();
    assert_eq!(file, NamespaceUrl::File { path: "/a".into(), sector: 4096 });
}
