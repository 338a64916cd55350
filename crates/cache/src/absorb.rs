//! Answers: what of them may be kept, and what the operation that asked gets in any case.
//!
//! An answer may be kept when nothing happened to its object between question and answer that it may not know of
//! ([`Generation`]), and when a capability that is held now covers it.

use bytes::Bytes;
use holdfast_base::Instant;

use crate::acting::Acting;
use crate::ask::{AllocateMode, Answer, Ask, Generation, Listed, Object, Question};
use crate::attrs::Attrs;
use crate::caps::Grant;
use crate::clean::Origin;
use crate::dir::Filling;
use crate::errno::Errno;
use crate::fresh::{Fresh, Row};
use crate::ids::{Caller, Handle, Name, NodeId, Now, OpenToken};
use crate::leases::Promise;
use crate::machine::Machine;
use crate::step::Turn;
use crate::tell::Release;
use holdfast_base::CapSet;

impl Machine {
    /// Takes in the answer to a question. With the turn that asked, its operation can be called again.
    pub fn absorb(&mut self, turn: &mut Turn, ask: Ask, answer: Result<Answer, Errno>, now: Now) {
        self.progress += 1;
        let Ask { at, caller: _, question } = ask;
        turn.asked_at = at;
        self.end_naming(&question);
        if answer.is_err() {
            self.end_change(&question, at, None);
        }
        self.absorb_xattr(&question, &answer, at);
        turn.fresh = match (question, answer) {
            (Question::Acquire { items }, answer) => {
                if let Ok(Answer::Acquired { items: granted }) = answer {
                    self.absorb_acquired(&items, granted, at);
                }
                turn.acquired = true;
                Some(Ok(Fresh::Acquired))
            }
            (Question::Blocks { node, blocks }, answer) => {
                let found = if let Ok(Answer::Blocks { found }) = answer { found } else { Vec::new() };
                self.absorb_blocks(turn, node, &blocks, found);
                Some(Ok(Fresh::Done))
            }
            (Question::WhoAmI, answer) => {
                let acting = if let Ok(Answer::Acts(acting)) = answer { acting } else { Acting::Unknown };
                self.learn_acting(&turn.caller, acting, at);
                Some(Ok(Fresh::Acts))
            }
            (_, Err(errno)) => Some(Err(errno)),
            // It was lost since: what is made again in its place is opened by another question.
            (Question::Open { object, .. }, Ok(Answer::Opened { open, .. }))
                if !self.handles.contains_key(&object) =>
            {
                self.closes.extend(open.map(|token| (token, turn.caller.clone(), NodeId::ROOT)));
                None
            }
            (question, Ok(answer)) => Some(self.absorb_answer(turn, &question, answer, at, now)),
        };
        self.rewrite_due(now);
    }

    fn absorb_xattr(&mut self, question: &Question, answer: &Result<Answer, Errno>, at: Generation) {
        let Question::GetXattr { object, name } = question else { return };
        let Some(id) = self.handles.get(object).copied() else { return };
        let value = match answer {
            Ok(Answer::Value { value }) => Ok(value.clone()),
            Ok(_) => return,
            Err(errno) => Err(*errno),
        };
        self.keep_xattr(id, name.clone(), value, at);
    }

    fn absorb_answer(
        &mut self,
        turn: &mut Turn,
        question: &Question,
        answer: Answer,
        at: Generation,
        now: Now,
    ) -> Result<Fresh, Errno> {
        match (question, answer) {
            (Question::Lookup { dir, name, .. }, Answer::Looked { found, dir: grant, promise }) => {
                Ok(self.absorb_looked((dir, name), (found, promise), grant, at, now.mono))
            }
            (Question::GetAttr { object, .. }, Answer::Attrs { attrs, grant }) => {
                Ok(Fresh::Attrs(self.absorb_attrs(object, &attrs, grant, at)))
            }
            (Question::SetAttr { object, .. }, Answer::Attrs { attrs, grant }) => {
                let shown = self.absorb_attrs_after(question, object, &attrs, grant, at);
                Ok(Fresh::Attrs(shown))
            }
            (Question::List { dir, cookie, verifier: _, .. }, listed @ Answer::Listed { .. }) => {
                Ok(self.absorb_listed(dir, *cookie, listed, at, now.mono))
            }
            (Question::Read { object, offset, .. }, Answer::Read { data, eof }) => {
                self.keep_read(object, *offset, &data, (at, Origin::Read));
                Ok(Fresh::Read(*offset, data, eof))
            }
            (Question::ReadLink { object }, Answer::Text { text }) => {
                if let Some(node) = self.by_handle(object) {
                    node.text = Some(text.clone());
                }
                Ok(Fresh::Text(text))
            }
            (Question::Open { object, access, .. }, Answer::Opened { open, attrs, grant }) => {
                self.absorb_attrs_after(question, object, &attrs, grant, at);
                self.admit(object, (&turn.caller, *access), (at, grant));
                Ok(Fresh::Opened(open))
            }
            (Question::Nameless { .. }, Answer::Created { object, open, .. }) => {
                let (id, attrs) = self.absorb_nameless(&object, at, now);
                Ok(Fresh::Created(id, attrs, open))
            }
            (
                Question::Create { .. } | Question::Make { .. } | Question::Link { .. },
                Answer::Created { object, open, made, dir, dir_attrs },
            ) => {
                let created =
                    self.absorb_created(question, &object, open, made, (dir, dir_attrs), at, now.mono);
                if let Question::Create { access, .. } = question {
                    self.admit(&object.handle, (&turn.caller, *access), (at, object.grant));
                }
                Ok(created)
            }
            (Question::Make { .. } | Question::Link { .. }, Answer::Done) => {
                self.end_change(question, at, None);
                self.made_and_gone(turn, question, now)
            }
            (Question::Remove { dir, .. }, Answer::Gone { dir: grant, dir_attrs })
            | (Question::Rename { to_dir: dir, .. }, Answer::Gone { dir: grant, dir_attrs }) => {
                let dir = dir.clone();
                self.end_change(question, at, Some(None));
                self.absorb_dir(&dir, grant, dir_attrs, at);
                Ok(Fresh::Gone)
            }
            (Question::Write { .. } | Question::Append { .. }, answer) => {
                self.absorb_put(turn, question, answer, at, now)
            }
            (_, answer) => self.absorb_plain(question, answer, at),
        }
    }

    /// The answer to data that was written: where it was said, or where the server found the end.
    fn absorb_put(
        &mut self,
        turn: &Turn,
        question: &Question,
        answer: Answer,
        at: Generation,
        now: Now,
    ) -> Result<Fresh, Errno> {
        match (question, answer) {
            (
                Question::Write { object, offset, data, .. },
                Answer::Written { count, stable, verifier, attrs },
            ) => {
                let (unstable, place) = ((!stable).then_some(verifier), (object, *offset, data));
                self.end_change(question, at, None);
                let count = self.absorb_written(place, (count, unstable, attrs), (&turn.caller, at), now);
                Ok(Fresh::Written(count))
            }
            (
                Question::Append { object, data, .. },
                Answer::Appended { offset, count, stable, verifier, attrs },
            ) => {
                let (unstable, place) = ((!stable).then_some(verifier), (object, offset, data));
                self.end_change(question, at, None);
                let count = self.absorb_written(place, (count, unstable, attrs), (&turn.caller, at), now);
                Ok(Fresh::Appended(offset, count))
            }
            (_, answer) => self.absorb_plain(question, answer, at),
        }
    }

    /// What the server took of data; `unstable`: it may lose it, after which its verifier is another.
    fn absorb_written(
        &mut self,
        (object, offset, data): (&Handle, u64, &Bytes),
        (count, unstable, attrs): (u32, Option<u64>, Option<Attrs>),
        (caller, at): (&Caller, Generation),
        now: Now,
    ) -> u32 {
        let taken = data.slice(..data.len().min(count as usize));
        let count = taken.len() as u32;
        if let Some(attrs) = attrs {
            self.absorb_attrs(object, &attrs, None, at);
        }
        if let Some(verifier) = unstable {
            self.keep_unstable(object, (offset, taken), verifier, (caller.clone(), at), now);
        } else if let Some(id) = self.handles.get(object).copied() {
            // What was kept of this place would undo what is on the disk now, should the server lose its memory.
            self.with_data(id, |data| data.extents.cut(offset, offset.saturating_add(u64::from(count))));
        }
        count
    }

    /// Answers of which nothing is kept but that a change has come to its end.
    fn absorb_plain(&mut self, question: &Question, answer: Answer, at: Generation) -> Result<Fresh, Errno> {
        self.end_change(question, at, None);
        self.overwritten_there(question, &answer);
        Ok(match answer {
            Answer::Done => Fresh::Done,
            Answer::Sought { offset } => Fresh::Sought(offset),
            Answer::Copied { count } => Fresh::Copied(count),
            Answer::Value { value } => Fresh::Value(value),
            Answer::Names { names } => Fresh::Names(names),
            Answer::Room { room } => Fresh::Room(room),
            // A driver that mixes up answers: the operation must not go round and round.
            _ => return Err(Errno::EIO),
        })
    }

    fn absorb_acquired(
        &mut self,
        items: &[(Handle, CapSet)],
        granted: Vec<Result<(Attrs, Grant), Errno>>,
        at: Generation,
    ) {
        for ((handle, _), result) in items.iter().zip(granted) {
            if let Ok((attrs, grant)) = result {
                self.absorb_attrs(handle, &attrs, Some(grant), at);
            }
        }
    }

    /// Attributes with what is held on them; returns them as they are to be shown.
    fn absorb_attrs(
        &mut self,
        handle: &Handle,
        attrs: &Attrs,
        grant: Option<Grant>,
        at: Generation,
    ) -> Attrs {
        let Some(id) = self.handles.get(handle).copied() else { return *attrs };
        if let Some(grant) = grant {
            self.take_grant(id, grant, at);
        }
        self.learn(id, attrs, (at, grant))
    }

    /// The server has put something else where there was data: what is kept of that for a server that loses its memory would undo it.
    fn overwritten_there(&mut self, question: &Question, answer: &Answer) {
        let (object, offset, length) = match (question, answer) {
            (Question::Allocate { mode: AllocateMode::Extend | AllocateMode::KeepSize, .. }, _) => return,
            (Question::Allocate { object, offset, length, .. }, Answer::Done) => (object, *offset, *length),
            (Question::Copy { to, to_offset, .. }, Answer::Copied { count }) => (to, *to_offset, *count),
            _ => return,
        };
        let Some(id) = self.handles.get(object).copied() else { return };
        self.with_data(id, |data| data.extents.cut(offset, offset.saturating_add(length)));
    }

    /// The same for the reply to a change.
    fn absorb_attrs_after(
        &mut self,
        question: &Question,
        handle: &Handle,
        attrs: &Attrs,
        grant: Option<Grant>,
        at: Generation,
    ) -> Attrs {
        let Some(id) = self.handles.get(handle).copied() else { return *attrs };
        if let Some(grant) = grant {
            self.take_grant(id, grant, at);
        }
        if question.is_mutation() {
            self.end_change(question, at, Some(None));
        }
        let shown = self.learn(id, attrs, (at, grant));
        // What leaves the size as it is cuts nothing off: the answer need not know of what was written since it was asked for.
        if question.cuts() {
            self.cut_kept(id, shown.size);
        }
        shown
    }

    fn absorb_dir(&mut self, dir: &Handle, grant: Option<Grant>, attrs: Option<Attrs>, at: Generation) {
        let Some(id) = self.handles.get(dir).copied() else { return };
        if let Some(grant) = grant {
            self.take_grant(id, grant, at);
        }
        if let Some(attrs) = attrs {
            self.learn(id, &attrs, (at, grant));
        }
    }

    /// An object that a reply tells of.
    pub(crate) fn absorb_object(&mut self, object: &Object, at: Generation, now: Instant) -> (NodeId, Attrs) {
        let known = self.handles.get(&object.handle).copied();
        let id = known.unwrap_or_else(|| self.add_node(Some(object.handle.clone()), object.attrs, now));
        if let Some(grant) = object.grant.filter(|_| at >= self.epoch) {
            if known.is_none() && at < self.forgot_holder && !grant.caps.is_empty() {
                // It may be older than the release of what was held before: not to be relied on, and given back.
                self.releases.push(Release {
                    handle: object.handle.clone(),
                    keep: CapSet::NONE,
                    seq: grant.seq,
                    life: self.life,
                });
                if let Ok(node) = self.node_mut(id) {
                    node.seq = grant.seq;
                }
            } else {
                self.take_grant(id, grant, at);
            }
        }
        (id, self.learn(id, &object.attrs, (at, object.grant)))
    }

    fn absorb_looked(
        &mut self,
        (dir, name): (&Handle, &Name),
        (found, promise): (Option<Object>, Option<Promise>),
        grant: Option<Grant>,
        at: Generation,
        now: Instant,
    ) -> Fresh {
        let dir = self.handles.get(dir).copied();
        if let (Some(dir), Some(grant)) = (dir, grant) {
            self.take_grant(dir, grant, at);
        }
        let unbound = dir.and_then(|d| self.unbound(d, name));
        let found = found.map(|object| match unbound {
            Some(id) => (id, self.learn(id, &object.attrs, (at, object.grant))),
            None => self.absorb_object(&object, at, now),
        });
        if let Some(dir) = dir {
            let node = found.map(|(id, _)| id);
            self.note_name(dir, name, node, (at, grant));
            if let Some(dir) = self.nodes.quietly(dir).and_then(|n| n.dir.as_mut()) {
                dir.note_promised(promise.is_some(), now);
            }
            if let Some(promise) = promise {
                self.note_promise(dir, (name, node), promise, at);
            }
        }
        Fresh::Looked(found)
    }

    /// The object of that name that was made here and whose handle is not known yet.
    fn unbound(&self, dir: NodeId, name: &Name) -> Option<NodeId> {
        let dir = self.nodes.get(&dir)?.dir.as_ref()?;
        match dir.look(name.as_bytes()) {
            crate::dir::Known::Present(id) if self.nodes.get(&id)?.handle.is_none() => Some(id),
            _ => None,
        }
    }

    /// Notes a name as the server told it, where that is guaranteed and not known better. `grant`: what came with it of its
    /// directory.
    fn note_name(
        &mut self,
        id: NodeId,
        name: &Name,
        node: Option<NodeId>,
        (at, grant): (Generation, Option<Grant>),
    ) {
        if let Some(node) = node.and_then(|node| self.nodes.get_mut(&node)).filter(|node| node.dir.is_some())
        {
            node.above = Some(id);
            if self.journal.is_some() {
                node.place = Some((id, name.clone()));
            }
        }
        let Some(holder) = self.nodes.get_mut(&id) else { return };
        let guaranteed =
            holder.held.contains(CapSet::FILE_S) && holder.names_lost <= at && holder.is_covered(at, grant);
        let Some(dir) = holder.dir.as_mut() else { return };
        if guaranteed && !dir.contains(name.as_bytes()) && !dir.is_busy(name.as_bytes()) {
            let absent_anyway = dir.complete;
            if absent_anyway && node.is_none() {
                return;
            }
            dir.put(name, node);
            self.forget_listing(id);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one answer")]
    fn absorb_created(
        &mut self,
        question: &Question,
        object: &Object,
        open: Option<OpenToken>,
        made: bool,
        (dir, dir_attrs): (Option<Grant>, Option<Attrs>),
        at: Generation,
        now: Instant,
    ) -> Fresh {
        let (dir_handle, was_there) = match question {
            Question::Create { dir, .. } => (dir, !made),
            Question::Make { dir, .. } | Question::Link { dir, .. } => (dir, false),
            _ => return Fresh::Done,
        };
        let known = self.handles.contains_key(&object.handle);
        let (id, mut shown) = self.absorb_object(object, at, now);
        self.end_change(question, at, Some(Some(id)));
        if known {
            shown = self.learn(id, &object.attrs, (at, object.grant));
        }
        self.absorb_dir(&dir_handle.clone(), dir, dir_attrs, at);
        if was_there { Fresh::Found(id, shown, open) } else { Fresh::Created(id, shown, open) }
    }

    fn absorb_listed(
        &mut self,
        handle: &Handle,
        cookie: u64,
        answer: Answer,
        at: Generation,
        now: Instant,
    ) -> Fresh {
        let Answer::Listed { entries, eof, verifier, dir: grant, dir_attrs } = answer else {
            return Fresh::Done;
        };
        let dir = self.handles.get(handle).copied();
        if let (Some(dir), Some(grant)) = (dir, grant) {
            self.take_grant(dir, grant, at);
        }
        if let (Some(dir), Some(attrs)) = (dir, dir_attrs) {
            self.learn(dir, &attrs, (at, grant));
        }
        let last = entries.last().map(|e| e.cookie);
        let mut rows = Vec::with_capacity(entries.len());
        for entry in entries {
            rows.extend(self.absorb_row(dir, entry, (at, grant), now));
        }
        // An entry whose object nobody could tell leaves a gap that "complete" would deny.
        if let Some(dir) = dir {
            if rows.iter().all(|r| r.node.is_some()) {
                self.fill(dir, (cookie, last), eof, verifier, (at, grant));
            } else if let Some(dir) = self.nodes.get_mut(&dir).and_then(|n| n.dir.as_mut()) {
                dir.filling = None;
            }
        }
        Fresh::Listed(rows, eof, verifier)
    }

    /// One entry of a listing; `None` where it is known better here that there is none.
    fn absorb_row(
        &mut self,
        dir: Option<NodeId>,
        entry: Listed,
        (at, grant): (Generation, Option<Grant>),
        now: Instant,
    ) -> Option<Row> {
        let Listed { name, cookie, object, brief } = entry;
        let ours = dir.and_then(|d| self.nodes.get(&d)?.dir.as_ref().map(|d| d.look(name.as_bytes())));
        let (node, attrs) = match (ours, object) {
            (Some(crate::dir::Known::Absent), _) => return None,
            (Some(crate::dir::Known::Present(id)), object) => {
                let its = object.filter(|object| self.handles.get(&object.handle) == Some(&id));
                (Some(id), its.map(|object| self.absorb_object(&object, at, now).1))
            }
            (_, object) => object.map(|object| self.absorb_object(&object, at, now)).unzip(),
        };
        if let (Some(dir), Some(id)) = (dir, node) {
            self.note_name(dir, &name, Some(id), (at, grant));
        }
        let known = node.and_then(|id| self.nodes.get(&id));
        let brief = known.map_or(brief, |node| (Some(node.attrs.kind), node.attrs.fileid));
        Some(Row { name, cookie, node, attrs, brief })
    }

    /// Goes on with the listing that is to make a directory complete.
    fn fill(
        &mut self,
        id: NodeId,
        (cookie, last): (u64, Option<u64>),
        eof: bool,
        verifier: u64,
        (at, grant): (Generation, Option<Grant>),
    ) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let guaranteed = node.held.contains(CapSet::FILE_S) && node.is_covered(at, grant);
        let lost = node.names_lost;
        let Some(dir) = node.dir.as_mut() else { return };
        if !guaranteed {
            dir.filling = None;
            return;
        }
        let filling = match dir.filling {
            _ if cookie == 0 => Filling { next: 0, verifier, at, pages: 0 },
            Some(f) if f.next == cookie => f,
            _ => return,
        };
        if lost > filling.at || dir.is_large || dir.len() > holdfast_base::limits::CACHED_NAMES_MAX {
            dir.filling = None;
        } else if eof {
            dir.set_complete();
        } else if filling.pages >= holdfast_base::limits::FILL_PAGES_MAX {
            dir.is_large = true;
            dir.filling = None;
        } else if let Some(next) = last {
            dir.filling = Some(Filling { next, verifier, pages: filling.pages + 1, ..filling });
        }
    }
}
