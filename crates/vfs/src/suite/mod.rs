//! The conformance suite: what every backend owes to its callers, as cases that run against a fresh backend each.
//!
//! A backend's tests call [`run`] with a maker. A case that a backend cannot be asked (nobody to act as, no second
//! opening) says so by [`Abilities`]; what the file system itself cannot do is read from its limits.
#![expect(clippy::unwrap_used, reason = "the suite is test code that other crates' tests call")]

mod attributes;
mod creating;
mod data;
mod exclusive;
mod handles;
mod listing;
mod locks;
mod names;
mod neighbours;
mod permissions;
mod spans;
mod spares;
mod world;
mod xattrs;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use holdfast_base::ByteRange;

use crate::backend::Backend;
use crate::error::FsResult;
use crate::handle::Handle;
use crate::open::LockKind;

/// What can be asked of the backend under test.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// Whether it judges callers by who they are (it does not when it serves everybody as one user).
    pub acts_as_callers: bool,
    /// Whether it can make devices.
    pub makes_devices: bool,
    /// Whether a conflicting lock can be tried by a second open: the backend's locks belong to open files.
    pub has_outside_locks: bool,
    /// Whether the handle of a removed file works while the file is open.
    pub keeps_handles_of_open_removed: bool,
}

/// What a process on the server's host does, for a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourDeed {
    /// Reads the file.
    Read,
    /// Appends a byte to the file.
    Append,
    /// Gives the file or directory another mode.
    ChangeMode,
    /// Gives the file or directory the name that it has with `-2` behind it.
    Rename,
    /// Makes a file in the directory.
    MakeEntry,
}

/// A process on the server's own host, which uses the served files beside the backend.
pub trait Neighbour {
    /// Begins a deed to the object of this name in the root. What is given back waits until it is done: a backend
    /// may make the neighbour wait until the pledge is let go.
    fn begin(&self, deed: NeighbourDeed, object: &Handle, name: &str) -> Box<dyn FnOnce()>;

    /// Takes a lock on the file of this name in the root, as a process would. Dropping what is given frees it.
    ///
    /// # Errors
    /// [`crate::FsError::Locked`] when a lock is in the way.
    fn lock(&self, file: &Handle, name: &str, range: ByteRange, kind: LockKind) -> FsResult<Box<dyn Any>>;
}

/// A backend to test, with what must live as long as it does.
pub struct TestBackend {
    /// The backend; its root is empty and the superuser's, or the one user's.
    pub backend: Arc<dyn Backend>,
    /// What it can be asked.
    pub abilities: Abilities,
    /// Opens the same content again after the first opening is gone; `None` where content does not outlive it.
    pub reopen: Option<Box<dyn Fn() -> Arc<dyn Backend>>>,
    /// A process beside the server, where there can be one and the backend pledges against it; `None` leaves out
    /// the cases about such.
    pub neighbour: Option<Box<dyn Neighbour>>,
    /// Dropped last.
    pub keep: Box<dyn Any>,
}

/// One case: its name states the rule.
type Case = (&'static str, fn(TestBackend));

macro_rules! cases {
    ($($module:ident: $($case:ident),+ $(,)?;)+) => {
        &[$($((concat!(stringify!($module), "::", stringify!($case)), $module::$case)),+),+]
    };
}

const CASES: &[Case] = cases! {
    names:
        lookup_finds_what_was_made_and_nothing_else,
        lookup_in_what_is_no_directory_says_so,
        names_of_255_bytes_and_of_any_bytes_are_kept,
        the_root_has_no_parent_and_other_directories_have,
        make_tells_the_directorys_change,
        make_of_an_existing_name_is_refused,
        symbolic_links_keep_their_text,
        special_files_have_their_kind_and_device,
        link_adds_a_name_and_counts_it,
        link_refuses_directories_and_existing_names,
        remove_obeys_the_kind_asked_for,
        remove_of_a_directory_with_entries_is_refused,
        remove_by_what_was_seen_takes_nothing_else_and_tells_the_last_name,
        rename_replaces_and_moves,
        rename_keeps_the_handle,
        rename_onto_another_kind_or_below_itself_is_refused,
        rename_without_replacing_and_exchange,
        rename_of_one_object_onto_its_own_other_name_changes_nothing;
    creating:
        a_created_file_has_the_attributes_asked_for,
        guarded_create_refuses_an_existing_name,
        unchecked_create_opens_what_is_there_and_cuts_only_when_asked,
        exclusive_create_is_found_again_by_its_verifier,
        must_exist_never_creates,
        create_refuses_what_is_no_regular_file,
        create_with_open_gives_an_open_file,
        a_file_without_a_name_lives_by_its_opens_and_may_get_a_name,
        a_file_that_is_made_and_written_first_is_as_one_created,
        the_umask_is_applied_at_creation;
    exclusive:
        an_exclusive_create_makes_what_a_guarded_one_does,
        an_exclusive_create_is_refused_as_a_guarded_one_and_leaves_nothing,
        an_exclusive_create_tells_attributes_that_stay,
        an_exclusive_create_gives_the_open_file_that_was_asked_for;
    spares:
        a_spare_file_becomes_what_a_create_makes,
        a_spare_file_keeps_its_number_and_what_was_written_to_it,
        a_spare_file_is_placed_where_its_maker_may_and_nothing_is,
        heritage_differs_when_what_is_made_would;
    attributes:
        attributes_tell_what_was_set,
        a_mode_keeps_its_set_id_and_sticky_bits,
        times_are_set_as_given_and_to_now,
        size_cuts_and_extends_with_zeros,
        size_is_refused_on_what_is_no_regular_file,
        a_guard_that_differs_changes_nothing,
        change_differs_after_every_change_somebody_could_see,
        change_stays_when_nothing_changed,
        ids_of_objects_are_distinct_and_stable,
        usage_and_limits_make_sense;
    data:
        what_was_written_is_read,
        reading_tells_the_end,
        writing_beyond_the_end_leaves_zeros,
        writing_tells_the_change_when_asked,
        reading_and_writing_need_a_regular_file,
        an_open_file_outlives_its_name,
        spans_name_the_same_bytes,
        an_open_for_reading_does_not_write,
        commits_succeed_for_everything_that_was_touched,
        the_write_verifier_stays_while_nothing_is_lost,
        large_offsets_work_and_impossible_ones_are_refused;
    listing:
        a_listing_gives_every_entry_once,
        a_listing_goes_on_from_any_cookie,
        cookies_stay_valid_while_other_entries_come_and_go,
        cookies_outlive_the_backend,
        listed_nodes_are_those_that_lookup_finds,
        cookies_are_in_range_and_bad_ones_are_refused_or_harmless,
        a_listing_of_what_is_no_directory_says_so;
    handles:
        a_removed_object_is_stale,
        a_removed_directory_is_stale_for_every_use,
        nonsense_is_never_taken_for_a_handle,
        handles_of_new_objects_are_never_those_of_removed_ones,
        handles_outlive_the_backend,
        exclusive_create_is_found_again_after_a_restart;
    permissions:
        the_kernels_permission_bits_are_judged_for_the_caller,
        group_membership_counts,
        the_owner_reads_and_writes_whatever_the_mode_says,
        who_may_execute_may_read,
        new_objects_belong_to_the_caller,
        a_setgid_directory_hands_its_group_down,
        the_sticky_bit_protects_others_files,
        writing_clears_set_id_bits,
        only_the_owner_changes_mode_and_times,
        who_may_write_sets_times_to_now,
        giving_a_file_away_is_the_superusers,
        access_tells_the_same_as_the_attempt,
        listing_needs_read_and_searching_needs_execute;
    spans:
        holes_and_data_are_found,
        regions_are_reserved_punched_and_zeroed,
        copies_have_the_same_bytes,
        clones_share_or_say_that_they_cannot;
    xattrs:
        extended_attributes_come_back,
        extended_attribute_modes_are_obeyed,
        extended_attributes_change_the_change;
    locks:
        a_lock_holds_against_another_open_file,
        unlocking_a_part_frees_that_part,
        closing_frees_all_locks;
    neighbours:
        what_a_neighbour_does_breaks_the_pledge_and_is_told,
        a_neighbours_look_breaks_what_nobody_else_may_look_at,
        what_we_do_ourselves_breaks_no_pledge,
        a_file_that_is_pledged_is_opened_read_and_written_all_the_same,
        a_pledge_is_for_its_kind_of_object,
        a_neighbours_lock_is_found_whatever_we_hold_ourselves,
        a_neighbours_unlock_is_told_to_who_waits;
};

/// Runs every case against a fresh backend.
///
/// # Panics
/// When cases fail: with all their names and what they said.
pub fn run(make: &dyn Fn() -> TestBackend) {
    let only = std::env::var("SUITE_CASE").unwrap_or_default();
    let mut failed = Vec::new();
    for (name, case) in CASES.iter().filter(|(name, _)| name.contains(&only)) {
        let outcome = catch_unwind(AssertUnwindSafe(|| case(make())));
        if let Err(panic) = outcome {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            failed.push(format!("{name}: {text}"));
        }
    }
    assert!(failed.is_empty(), "{} of {} cases failed:\n{}", failed.len(), CASES.len(), failed.join("\n"));
}
