//! Telling the service manager how the server is (systemd's `sd_notify` protocol).

use std::env;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Tells the service manager, if there is one.
pub(crate) fn notify(state: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(Path::new(&socket), state) {
        tracing::warn!(socket = %socket.display(), %error, "cannot tell the service manager");
    }
}

fn send(socket: &Path, state: &str) -> std::io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::SocketAddr;

    let sender = UnixDatagram::unbound()?;
    // A leading @ names a socket of the abstract namespace.
    let address = match socket.as_os_str().as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    sender.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

/// The service manager's address, if there is one.
///
/// # Errors
/// It is no address.
pub(crate) fn manager() -> Option<std::io::Result<rustix::net::SocketAddrUnix>> {
    use std::os::unix::ffi::OsStrExt;
    let socket = env::var_os("NOTIFY_SOCKET")?;
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => rustix::net::SocketAddrUnix::new_abstract_name(name),
        path => rustix::net::SocketAddrUnix::new(path),
    };
    Some(address.map_err(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_arrives_at_the_manager() {
        let path = env::temp_dir().join(format!("holdfast-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let manager = UnixDatagram::bind(&path).unwrap();
        send(&path, "READY=1").unwrap();
        let mut got = [0; 32];
        let n = manager.recv(&mut got).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(&got[..n], b"READY=1");
    }
}
