use super::*;

fn offered(flags: InitFlags) -> InitIn {
    InitIn { major: 7, minor: 45, readahead_bytes_max: 131_072, flags }
}

const EVERYTHING: InitFlags = InitFlags::from_bits(u64::MAX);

#[test]
fn only_what_both_want_is_agreed_on() {
    let (out, connection) = agree(&offered(EVERYTHING), &Config::default());
    assert_eq!(out.flags, Config::FLAGS);
    assert_eq!((out.minor, connection.minor), (45, 45));
    let few = InitFlags::ASYNC_READ | InitFlags::MAX_PAGES | InitFlags::WRITEBACK_CACHE;
    let (out, _) = agree(&offered(few), &Config::default());
    assert_eq!(out.flags, InitFlags::ASYNC_READ | InitFlags::MAX_PAGES);
}

#[test]
fn the_older_minor_version_counts() {
    let older = InitIn { minor: 32, ..offered(EVERYTHING) };
    assert_eq!(agree(&older, &Config::default()).1.minor, 32);
    let newer = InitIn { minor: 99, ..offered(EVERYTHING) };
    assert_eq!(agree(&newer, &Config::default()).1.minor, abi::MINOR);
}

#[test]
fn requests_are_small_without_max_pages() {
    let (out, _) = agree(&offered(InitFlags::ASYNC_READ), &Config::default());
    let page_bytes = u32::try_from(rustix::param::page_size()).expect("a page");
    assert_eq!(out.write_bytes_max, 32 * page_bytes);
    let (out, _) = agree(&offered(InitFlags::MAX_PAGES), &Config::default());
    assert_eq!(u32::from(out.pages_max) * page_bytes, 1 << 20);
}

#[test]
fn passthrough_excludes_a_depth_of_none() {
    let mut config = Config { flags: Config::FLAGS | InitFlags::PASSTHROUGH, ..Config::default() };
    let (out, connection) = agree(&offered(EVERYTHING), &config);
    assert!(connection.flags.contains(InitFlags::PASSTHROUGH));
    assert_eq!(out.stack_depth_max, 1);
    config.stack_depth_max = 0;
    let (out, _) = agree(&offered(EVERYTHING), &config);
    assert!(!out.flags.contains(InitFlags::PASSTHROUGH));
}

#[test]
fn the_reply_to_init_has_the_size_the_kernel_wants() {
    let (out, _) = agree(&offered(EVERYTHING), &Config::default());
    let mut body = Vec::new();
    out.encode(&mut body);
    assert_eq!(body.len(), 64);
    let mut old = Vec::new();
    older(&mut old);
    assert_eq!(old.len(), 64);
}

#[test]
fn what_breaks_coherence_is_never_asked_for() {
    let never = InitFlags::WRITEBACK_CACHE | InitFlags::AUTO_INVAL_DATA | InitFlags::EXPORT_SUPPORT;
    assert!(!Config::FLAGS.intersects(never));
}
