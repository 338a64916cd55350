use super::*;

/// A server as the overseer sees it.
struct Scene {
    judge: Judge,
    seen: Seen,
}

impl Scene {
    /// One hand, to which nothing has come yet.
    fn new() -> Self {
        let mut scene = Self { judge: Judge::default(), seen: Seen { wanted: 1, ..Seen::default() } };
        scene.look(0, 0, 0);
        scene
    }

    /// One that much comes to.
    fn busy() -> Self {
        let mut scene = Self::new();
        scene.look(CREW_BUSY_RUNS, 0, 0);
        assert_eq!(scene.judge.pause(), Duration::from_millis(CREW_LOOK_MS));
        scene
    }

    /// So many tasks later so many are at work, and so many have been all the time. What is wanted then is done.
    fn look(&mut self, came: u64, awake: usize, still: usize) -> Verdict {
        self.seen = Seen { runs: self.seen.runs.wrapping_add(came), awake, still, ..self.seen };
        let verdict = self.judge.look(self.seen);
        match verdict {
            Verdict::Keep | Verdict::Rouse => {}
            Verdict::Call => self.seen.wanted += 1,
            Verdict::Lend => (self.seen.wanted, self.seen.lent) = (self.seen.wanted + 1, self.seen.lent + 1),
            Verdict::Rest => {
                (self.seen.wanted, self.seen.lent) = (self.seen.wanted - 1, self.seen.lent.saturating_sub(1));
            }
        }
        verdict
    }
}

#[test]
fn one_is_enough_while_it_has_a_moment_in_which_there_is_nothing_to_do() {
    let mut scene = Scene::busy();
    for _ in 0..10 * CREW_CALM_LOOKS {
        assert_eq!(scene.look(100, 1, 0), Verdict::Keep);
    }
    for _ in 0..100 {
        (1..CREW_FULL_LOOKS).for_each(|_| assert_eq!(scene.look(100, 1, 1), Verdict::Keep));
        assert_eq!(scene.look(100, 1, 0), Verdict::Keep);
    }
}

#[test]
fn one_more_comes_where_none_has_and_goes_when_one_less_would_do() {
    let mut scene = Scene::busy();
    for wanted in 1..4 {
        (1..CREW_FULL_LOOKS).for_each(|_| assert_eq!(scene.look(100, wanted, wanted), Verdict::Keep));
        assert_eq!(scene.look(100, wanted, wanted), Verdict::Call);
    }
    // Four of whom three are always at something: all are kept. Then two and a little, and three are.
    (0..5 * CREW_CALM_LOOKS).for_each(|_| assert_eq!(scene.look(100, 3, 1), Verdict::Keep));
    let looks = (0..CREW_CALM_LOOKS).map(|_| scene.look(100, 2, 1)).collect::<Vec<_>>();
    assert_eq!(looks.iter().filter(|verdict| **verdict == Verdict::Rest).count(), 1);
    assert_eq!(scene.seen.wanted, 3);
}

#[test]
fn one_that_hangs_is_stood_in_for_at_the_next_look_for_as_long_as_it_does() {
    for mut scene in [Scene::new(), Scene::busy()] {
        assert_eq!(scene.look(0, 1, 1), Verdict::Lend);
        (0..3 * CREW_CALM_LOOKS).for_each(|_| assert_eq!(scene.look(100, 2, 1), Verdict::Keep));
        assert_eq!(scene.look(0, 1, 1), Verdict::Rouse, "nothing comes, or nobody sees it");
        assert_eq!(scene.look(0, 2, 2), Verdict::Lend, "who stands in for it hangs as well");
        (1..CREW_LENT_LOOKS).for_each(|_| assert_eq!(scene.look(100, 1, 0), Verdict::Keep));
        assert_eq!(scene.look(100, 1, 0), Verdict::Rest);
        (1..CREW_LENT_LOOKS).for_each(|_| assert_eq!(scene.look(100, 1, 0), Verdict::Keep));
        assert_eq!(scene.look(100, 1, 0), Verdict::Rest);
        assert_eq!((scene.seen.wanted, scene.seen.lent), (1, 0));
    }
}

#[test]
fn few_tasks_that_take_long_are_as_much_to_do_as_many() {
    let mut scene = Scene::new();
    let calls = (0..100).filter(|_| scene.look(1, 1, 1) == Verdict::Call).count();
    assert!(calls > 0);
    let mut scene = Scene::busy();
    while scene.look(1, scene.seen.wanted, scene.seen.wanted) != Verdict::Call {}
    (0..3 * CREW_CALM_LOOKS).for_each(|_| assert_eq!(scene.look(1, 2, 0), Verdict::Keep));
    assert!(scene.judge.is_busy);
}

#[test]
fn none_goes_while_another_hangs() {
    let mut scene = Scene::busy();
    while scene.look(100, 1, 1) != Verdict::Call {}
    (0..5 * CREW_CALM_LOOKS).for_each(|_| assert_eq!(scene.look(1, 1, 1), Verdict::Keep));
    assert_eq!(scene.look(0, 1, 1), Verdict::Lend);
    (0..5 * CREW_CALM_LOOKS).for_each(|_| assert_eq!(scene.look(1, 1, 1), Verdict::Keep));
    assert_eq!((scene.seen.wanted, scene.seen.lent), (3, 1));
}

#[test]
fn where_little_comes_all_but_one_go_and_it_looks_seldom() {
    let mut scene = Scene::busy();
    while scene.look(100, 1, 1) != Verdict::Call {}
    while scene.look(0, 0, 0) != Verdict::Rest {}
    assert_eq!((scene.seen.wanted, scene.judge.is_busy), (1, false));
    assert_eq!(scene.judge.pause(), Duration::from_millis(CREW_IDLE_MS));
}
