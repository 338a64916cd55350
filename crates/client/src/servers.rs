//! Which servers are tried, in which order, and who named them.

use std::time::{Duration, Instant};

use holdfast_base::limits::SERVERS_TOLD_MAX;

/// Moves in so long that are taken for a file system on its way; with more, servers send clients to each other.
const MOVES_MAX: usize = 8;
const MOVES_WITHIN: Duration = Duration::from_secs(60);

/// The servers, and the one in use.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    all: Vec<Server>,
    current: usize,
    /// Those that a server tells of are nobody's but the user's to name.
    only_named: bool,
    /// How often a server has sent us away.
    moves: u64,
    /// When it was the last times, at most [`MOVES_MAX`].
    moved_at: std::collections::VecDeque<Instant>,
    /// What a server told and the user does not want.
    removed: Vec<String>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) name: String,
    /// By a server; what the user named is never taken away by one.
    pub(crate) is_told: bool,
}

impl Servers {
    pub(crate) fn new(named: Vec<String>) -> Self {
        let all = named.into_iter().map(|name| Server { name, is_told: false }).collect();
        Self { all, ..Self::default() }
    }

    /// Of those that servers tell of none is to be gone to, unless the user names it.
    pub(crate) fn only_named(self) -> Self {
        Self { only_named: true, ..self }
    }

    /// Whether a server that was told of may be gone to.
    fn is_allowed(&self, name: &str) -> bool {
        !self.only_named || self.all.iter().any(|of| !of.is_told && of.name == name)
    }

    /// Of servers that are said to have the files, those that may be gone to from the one in use: each once, and no more than can
    /// be tried.
    pub(crate) fn others(&self, told: &[String]) -> Vec<String> {
        let mut others: Vec<String> = Vec::new();
        for name in told.iter().filter(|name| self.is_allowed(name)) {
            let is_new = self.current_name() != Some(name.as_str()) && !others.contains(name);
            if is_new && others.len() < SERVERS_TOLD_MAX {
                others.push(name.clone());
            }
        }
        others
    }

    /// In the order in which they are tried after the one in use.
    pub(crate) fn names(&self) -> Vec<String> {
        self.all.iter().map(|server| server.name.clone()).collect()
    }

    /// Those that a server has told of.
    pub(crate) fn told(&self) -> Vec<String> {
        self.all.iter().filter(|server| server.is_told).map(|server| server.name.clone()).collect()
    }

    /// The place of the one in use.
    pub(crate) const fn current(&self) -> usize {
        self.current
    }

    pub(crate) fn current_name(&self) -> Option<&str> {
        self.all.get(self.current).map(|server| server.name.as_str())
    }

    /// The `n`-th behind the one in use, where that is another, and the user's: one that was told of may be there only when this
    /// one is not, and would be waited for.
    pub(crate) fn behind(&self, n: usize) -> Option<&str> {
        let at = (self.current + n) % self.all.len().max(1);
        let other = self.all.get(at).filter(|server| at != self.current && !server.is_told)?;
        Some(other.name.as_str())
    }

    /// This one is in use now.
    pub(crate) fn uses(&mut self, name: &str) {
        if let Some(at) = self.place(name) {
            self.current = at;
        }
    }

    pub(crate) const fn moves(&self) -> u64 {
        self.moves
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|server| server.name == name)
    }

    /// Puts others in their place; whether the one in use is among them.
    fn put(&mut self, all: Vec<Server>) -> bool {
        let used = self.current_name().map(str::to_owned);
        let at = used.and_then(|used| all.iter().position(|server| server.name == used));
        (self.all, self.current) = (all, at.unwrap_or(0));
        at.is_some()
    }

    /// The user names others; whether the one in use is among them.
    pub(crate) fn set(&mut self, named: Vec<String>) -> bool {
        self.removed.clear();
        let named = named.into_iter().map(|name| Server { name, is_told: false }).collect();
        self.put(named)
    }

    /// The user names one more, tried last. False when he had.
    pub(crate) fn add(&mut self, name: String) -> bool {
        self.removed.retain(|removed| *removed != name);
        match self.all.iter_mut().find(|server| server.name == name) {
            Some(known) => std::mem::take(&mut known.is_told),
            None => {
                self.all.push(Server { name, is_told: false });
                true
            }
        }
    }

    /// The user does not want one any more; whether the one in use still is among them. `None` when it is none of them.
    pub(crate) fn remove(&mut self, name: &str) -> Option<bool> {
        let at = self.place(name)?;
        let mut all = self.all.clone();
        if all.remove(at).is_told && self.removed.len() < SERVERS_TOLD_MAX {
            self.removed.push(name.to_owned());
        }
        Some(self.put(all))
    }

    /// The server in use tells where else the same files are: that replaces what was told before.
    pub(crate) fn learn(&mut self, mut found: Vec<String>) {
        found.retain(|name| self.is_allowed(name) && !self.removed.contains(name));
        let used = self.current_name().map(str::to_owned);
        let mut all = self.all.clone();
        all.retain(|of| !of.is_told || found.contains(&of.name) || Some(&of.name) == used.as_ref());
        for name in found {
            let told = all.iter().filter(|server| server.is_told).count();
            if told < SERVERS_TOLD_MAX && !all.iter().any(|server| server.name == name) {
                all.push(Server { name, is_told: true });
            }
        }
        self.put(all);
    }

    /// The server in use says that the files are on others: these are tried first, and that one last. Gives them; none where there
    /// is no other that may be gone to.
    pub(crate) fn go(&mut self, told: &[String]) -> Vec<String> {
        let found = self.others(told);
        if found.is_empty() {
            return found;
        }
        let used = self.current_name().map(str::to_owned);
        let known = std::mem::take(&mut self.all);
        let is_told = |name: &String| known.iter().find(|of| of.name == *name).is_none_or(|of| of.is_told);
        let server = |name: &String| Server { name: name.clone(), is_told: is_told(name) };
        let mut all: Vec<Server> = found.iter().map(server).collect();
        let (last, rest): (Vec<_>, Vec<_>) =
            known.into_iter().partition(|of| Some(&of.name) == used.as_ref());
        // What was told before was told of where the files were.
        for server in rest.into_iter().filter(|of| !of.is_told).chain(last) {
            if !all.iter().any(|of| of.name == server.name) {
                all.push(server);
            }
        }
        (self.all, self.current) = (all, 0);
        self.moves += 1;
        if self.moved_at.len() == MOVES_MAX {
            self.moved_at.pop_front();
        }
        self.moved_at.push_back(Instant::now());
        found
    }

    /// Whether servers send us from one to the other: then the next is not to be tried at once.
    pub(crate) fn is_sent_around(&self) -> bool {
        self.moved_at.len() == MOVES_MAX && self.moved_at[0].elapsed() < MOVES_WITHIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|text| (*text).to_owned()).collect()
    }

    fn goes(servers: &mut Servers, to: &[&str]) -> bool {
        !servers.go(&texts(to)).is_empty()
    }

    #[test]
    fn what_is_told_comes_behind_what_was_named_and_what_is_told_next_replaces_it() {
        let mut servers = Servers::new(texts(&["a", "b"]));
        servers.learn(texts(&["b", "c", "d"]));
        assert_eq!(servers.names(), ["a", "b", "c", "d"]);
        assert_eq!(servers.told(), ["c", "d"]);
        servers.uses("c");
        servers.learn(texts(&["e"]));
        assert_eq!(servers.names(), ["a", "b", "c", "e"], "the one in use stays, and those that were named");
        assert_eq!(servers.current_name(), Some("c"));
        servers.learn(vec![]);
        servers.uses("a");
        servers.learn(vec![]);
        assert_eq!(servers.names(), ["a", "b"]);
    }

    #[test]
    fn no_more_is_told_than_can_be_tried() {
        let mut servers = Servers::new(texts(&["a"]));
        servers.learn((0..1000).map(|n| n.to_string()).collect());
        assert_eq!(servers.names().len(), 1 + SERVERS_TOLD_MAX);
        assert!(!servers.go(&(2000..3000).map(|n| n.to_string()).collect::<Vec<_>>()).is_empty());
        servers.learn(vec![]);
        assert!(servers.names().contains(&"a".to_owned()));
        assert!(servers.names().len() <= 2 + SERVERS_TOLD_MAX);
        for n in 0..20 {
            servers.go(&(0..1000).map(|m| format!("{n}-{m}")).collect::<Vec<_>>());
            assert!(
                servers.names().len() <= 2 + SERVERS_TOLD_MAX,
                "those told before are where the files were"
            );
        }
    }

    #[test]
    fn who_is_sent_around_between_servers_is_found_out() {
        let mut servers = Servers::new(texts(&["a", "b"]));
        let around: Vec<_> = (0..MOVES_MAX)
            .map(|n| {
                goes(&mut servers, &[["b", "a"][n % 2]]);
                servers.is_sent_around()
            })
            .collect();
        assert_eq!(around.iter().filter(|is| **is).count(), 1, "the last: {around:?}");
    }

    #[test]
    fn who_sends_us_away_comes_last() {
        let mut servers = Servers::new(texts(&["a", "b"]));
        assert!(!goes(&mut servers, &["a"]), "to itself");
        assert_eq!(servers.moves(), 0);
        assert!(goes(&mut servers, &["c", "a", "c"]));
        assert_eq!(servers.names(), ["c", "b", "a"]);
        assert_eq!((servers.current(), servers.moves(), servers.told()), (0, 1, texts(&["c"])));
        assert!(goes(&mut servers, &["a"]));
        assert_eq!(servers.names(), ["a", "b", "c"]);
        assert_eq!(servers.told(), ["c"], "what was named stays so");
    }

    #[test]
    fn who_goes_where_it_was_named_to_alone_goes_nowhere_else_whatever_is_told() {
        let mut servers = Servers::new(texts(&["a", "b"])).only_named();
        servers.learn(texts(&["c", "b"]));
        assert_eq!(servers.names(), ["a", "b"]);
        assert!(!goes(&mut servers, &["c"]));
        assert_eq!((servers.moves(), servers.current_name()), (0, Some("a")));
        assert!(goes(&mut servers, &["c", "b"]));
        assert_eq!((servers.names(), servers.moves()), (texts(&["b", "a"]), 1));
        assert!(servers.add("c".into()), "by the user");
        assert!(goes(&mut servers, &["c"]));
        assert_eq!(servers.current_name(), Some("c"));
    }

    #[test]
    fn where_it_may_go_is_judged_as_it_goes_and_each_is_tried_once() {
        let mut servers = Servers::new(texts(&["a", "b", "c"])).only_named();
        let told = texts(&["a", "d", "c", "b", "c"]);
        assert_eq!(servers.others(&told), ["c", "b"]);
        // The user takes one away while what is under way there comes to its end.
        servers.remove("c");
        assert_eq!(servers.go(&told), ["b"]);
        assert_eq!(servers.names(), ["b", "a"]);
        assert_eq!(servers.go(&texts(&["b", "d"])), texts(&[]), "nowhere else");
        assert_eq!((servers.moves(), servers.current_name()), (1, Some("b")));
    }

    #[test]
    fn what_the_user_removes_is_not_told_again_and_what_he_adds_is_his() {
        let mut servers = Servers::new(texts(&["a"]));
        servers.learn(texts(&["b", "c"]));
        assert_eq!(servers.remove("b"), Some(true));
        assert_eq!(servers.remove("b"), None);
        servers.learn(texts(&["b", "c"]));
        assert_eq!(servers.names(), ["a", "c"]);
        assert!(servers.add("b".into()) && servers.add("c".into()));
        assert!(!servers.add("c".into()));
        assert!(servers.told().is_empty());
        assert_eq!(servers.remove("a"), Some(false), "the one in use");
        assert_eq!(servers.current_name(), Some("c"));
    }
}
