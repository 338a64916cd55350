//! Histories in which something was shown, or taken for others' doing, that was not: found at random, and cut down.

use super::{Step, shows_what_there_is};

#[test]
fn results_that_come_behind_those_of_later_batches_do_not_make_what_is_there_anothers() {
    let steps = [
        Step::Write { file: 0, offset: 1, len: 1, byte: 1 },
        Step::Write { file: 2, offset: 0, len: 1, byte: 1 },
        Step::Read { file: 0, offset: 1, len: 1 },
        Step::Read { file: 0, offset: 0, len: 1 },
        Step::Read { file: 0, offset: 26, len: 1 },
        Step::Sync,
        Step::Truncate { file: 0, size: 0 },
        Step::Truncate { file: 2, size: 0 },
        Step::Write { file: 0, offset: 0, len: 1, byte: 1 },
        Step::Die { loses_power: false },
        Step::Truncate { file: 0, size: 0 },
    ];
    shows_what_there_is(&steps, 5_864_991_331_817_490_246, 1);
}

#[test]
fn a_size_that_is_set_to_what_it_was_is_not_anothers_doing() {
    let steps = [
        Step::Write { file: 1, offset: 0, len: 1, byte: 1 },
        Step::Truncate { file: 1, size: 96 },
        Step::Truncate { file: 0, size: 0 },
        Step::Truncate { file: 1, size: 96 },
        Step::Die { loses_power: false },
        Step::Write { file: 1, offset: 0, len: 1, byte: 1 },
        Step::Read { file: 0, offset: 0, len: 1 },
    ];
    shows_what_there_is(&steps, 0, 1);
}

#[test]
fn what_an_answer_tells_that_is_older_than_a_change_of_ours_is_not_what_the_server_has() {
    let steps = [
        Step::Write { file: 0, offset: 0, len: 1, byte: 1 },
        Step::Pump,
        Step::Write { file: 2, offset: 0, len: 1, byte: 1 },
        Step::Truncate { file: 2, size: 0 },
        Step::Read { file: 1, offset: 0, len: 1 },
        Step::Away,
        Step::Write { file: 2, offset: 0, len: 1, byte: 1 },
        Step::TheirTruncate { file: 0, size: 0 },
    ];
    shows_what_there_is(&steps, 9_589_343_906_156_213_064, 1);
}

#[test]
fn what_was_written_here_is_read_though_it_reaches_the_server_while_its_reader_asks_for_more() {
    let steps = [
        Step::Write { file: 1, offset: 32, len: 38, byte: 1 },
        Step::Read { file: 0, offset: 0, len: 200 },
        Step::Pump,
        Step::Write { file: 0, offset: 1, len: 1, byte: 2 },
        Step::Read { file: 2, offset: 50, len: 1 },
        Step::Read { file: 0, offset: 0, len: 1 },
        Step::Truncate { file: 0, size: 17 },
    ];
    shows_what_there_is(&steps, 12_457_241_198_681_503_668, 7);
}
