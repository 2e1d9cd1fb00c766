use super::*;
use std::os::unix::fs::PermissionsExt;

fn me() -> AddressOwner {
    let name = std::fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_string();
    AddressOwner { pid: std::process::id(), name }
}

fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("weir-holder-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn a_busy_port_names_its_process() {
    for any in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
        let Ok(first) = listen_tcp(any.parse().unwrap()) else { continue };
        let address = first.local_addr().unwrap();
        let who = who_holds_tcp(address).unwrap();
        assert_eq!(who.pid, me().pid, "{any}");
        let error = listen_tcp(address).unwrap_err();
        assert!(matches!(&error, BindError::Busy { holder: Some(who), .. } if who.pid == me().pid), "{error}");
        let text = error.to_string();
        let wanted = format!("{address}: in use by {:?} (process {})", who.name, who.pid);
        assert_eq!(text, wanted + "; stop it or choose another address");
    }
    assert_eq!(who_holds_tcp("127.0.0.1:1".parse().unwrap()), None);
}

/// More than std's queue of 128, so that none of them has to send its SYN again.
#[test]
fn many_connections_may_wait() {
    let listener = listen_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = |_| std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_secs(20)).unwrap();
    let waiting: Vec<std::net::TcpStream> = (0..400).map(connect).collect();
    assert!(waiting.iter().all(|_| listener.accept().is_ok()));
}

#[test]
fn a_busy_socket_names_its_process_and_a_stale_one_is_replaced() {
    let dir = folder("unix");
    let path = dir.join("a.sock");
    let first = listen_unix(&path, 0o600).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(who_holds_unix(&path).unwrap().pid, me().pid);
    let error = listen_unix(&path, 0o600).unwrap_err();
    assert!(matches!(&error, BindError::Busy { holder: Some(who), .. } if who.pid == me().pid), "{error}");
    assert!(UnixStream::connect(&path).is_ok(), "the first one still listens");
    drop(first);
    // Closed but not removed, as after SIGKILL.
    assert!(path.exists());
    let second = listen_unix(&path, 0o660).unwrap();
    assert!(UnixStream::connect(&path).is_ok());
    drop(second);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A listener that no process has, as after SIGKILL while the kernel still takes the dead one's rings apart: it lies in a
/// socket's queue, where `release` drops it.
fn orphan(listener: TcpListener) -> (UnixStream, UnixStream) {
    use std::os::fd::AsFd;
    let (near, far) = UnixStream::pair().unwrap();
    assert_eq!(weir_sys::transport::fds::send(&near, b"x", &[listener.as_fd()]).unwrap(), 1);
    (near, far)
}

#[test]
fn an_address_of_nobody_alive_is_waited_for() {
    let first = listen_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = first.local_addr().unwrap();
    let pair = orphan(first);
    assert_eq!(who_holds_tcp(address), None);
    let release = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        drop(pair);
    });
    let second = listen_tcp(address).unwrap();
    release.join().unwrap();
    drop(second);
}

/// As of a node whose keeper was killed: its worker has the sockets until it has heard of that.
#[test]
fn an_address_of_somebody_who_is_on_the_way_out_is_waited_for() {
    let first = listen_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = first.local_addr().unwrap();
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .stdin(std::process::Stdio::from(std::os::fd::OwnedFd::from(first)))
        .spawn()
        .unwrap();
    assert_eq!(who_holds_tcp(address).map(|who| who.pid), Some(child.id()));
    child.kill().unwrap();
    listen_tcp(address).unwrap();
    child.wait().unwrap();
}

#[test]
fn it_is_not_waited_for_without_end() {
    let first = listen_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = first.local_addr().unwrap();
    let _pair = orphan(first);
    let error = listen_tcp(address).unwrap_err();
    assert!(matches!(&error, BindError::Busy { holder: None, .. }), "{error}");
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let dir = folder("file");
    let path = dir.join("precious");
    std::fs::write(&path, "data").unwrap();
    let error = listen_unix(&path, 0o600).unwrap_err();
    assert!(matches!(&error, BindError::NotASocket(p) if *p == path), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
    let error = listen_unix(&dir.join("none/a.sock"), 0o600).unwrap_err().to_string();
    assert!(error.ends_with("; create its folder or choose another path"), "{error}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_kernels_tables_are_read() {
    let line = "   0: 0100007F:1144 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 31337 1 0";
    let at = |text: &str| listening_inode(line, text.parse().unwrap());
    if cfg!(target_endian = "little") {
        assert_eq!(at("127.0.0.1:4420"), Some(31337));
        assert_eq!(at("0.0.0.0:4420"), Some(31337));
        assert_eq!((at("127.0.0.2:4420"), at("127.0.0.1:4421")), (None, None));
        let six = "0: 00000000000000000000000001000000:1144 0:0 0A 0 0 0 0 0 7";
        assert_eq!(listening_inode(six, "[::1]:4420".parse().unwrap()), Some(7));
    }
    assert_eq!(listening_inode(&line.replace(" 0A ", " 01 "), "127.0.0.1:4420".parse().unwrap()), None);
    for odd in ["", "x", "0: zz:1144 0 0A 0 0 0 0 0 7", "0: 01:1144 0 0A 0 0 0 0 0 7"] {
        assert_eq!(listening_inode(odd, "127.0.0.1:4420".parse().unwrap()), None);
    }
}

#[test]
fn a_holder_without_a_name_has_a_number() {
    assert_eq!(AddressOwner { pid: 7, name: String::new() }.to_string(), "process 7");
    assert_eq!(AddressOwner { pid: 7, name: "weir".into() }.to_string(), "\"weir\" (process 7)");
}
