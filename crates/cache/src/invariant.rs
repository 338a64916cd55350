//! What holds after every step. Slow: for tests.

use crate::ids::Handle;
use crate::machine::Machine;
use crate::queue::Op;
use holdfast_base::CapSet;

/// Looks through everything the machine holds.
///
/// # Errors
/// The first rule that does not hold, with what breaks it.
pub fn check(machine: &Machine) -> Result<(), String> {
    machine.stream.check()?;
    machine.leases.check(machine)?;
    if !machine.pools.is_sound() {
        return Err(format!("{:?} counts wrong", machine.pools));
    }
    if !machine.ahead.is_sound() {
        return Err(format!("{:?} counts wrong", machine.ahead));
    }
    if let Some(disk) = &machine.disk {
        disk.check()?;
    }
    let (mut unsent, mut unstable) = (0, 0);
    for (id, node) in &machine.nodes {
        let wrong = |what: &str| Err(format!("{id:?}: {what}: {node:?}"));
        if *id != node.id {
            return wrong("is filed under another number");
        }
        if !node.held.shared().contains(node.sure) {
            return wrong("is sure of what is not held");
        }
        if node.sure.contains(CapSet::FILE_S) && node.data.kept.doubted.is_some() {
            return wrong("is sure of data of which it doubts what is kept");
        }
        if node.held != node.held.sound() {
            return wrong("holds exclusively what it does not hold shared");
        }
        if let Some(dir) = &node.dir {
            dir.check().map_err(|e| format!("{id:?}: {e}"))?;
            if !node.held.contains(CapSet::FILE_S) && (dir.has_names() || dir.complete) {
                return wrong("knows names that nothing guarantees");
            }
            if dir.listing.is_over || (dir.listing.is_kept && !dir.complete) {
                return wrong("has a listing that is none any more");
            }
            if let Some((.., lost)) = dir.entries(0).find(|(.., n)| !machine.nodes.contains_key(n)) {
                return Err(format!("{id:?} names {lost:?}, which is not known"));
            }
        }
        if node.recall.is_some_and(|r| !r.keep.contains(node.held) || !machine.recalling.contains(id)) {
            return wrong("uses what was recalled, or its recall is forgotten");
        }
        node.data.extents.check().map_err(|e| format!("{id:?}: {e}"))?;
        if node.data.keeps_back && node.data.extents.has_dirty() && !node.data.is_aging {
            return Err(format!("{id:?}: data is kept back for good"));
        }
        unsent += node.data.extents.weights().unsent;
        unstable += node.data.extents.weights().unstable;
        check_pending(machine, node)?;
        if let Some(fh) = node.opens.iter().find(|fh| !machine.opens.contains_key(fh)) {
            return Err(format!("{id:?} has {fh:?} open, which is not"));
        }
    }
    if (unsent, unstable) != (machine.flush.unsent, machine.flush.unstable) {
        return Err(format!("data sums to {unsent}, {unstable}, flush says {:?}", machine.flush));
    }
    let dangling = machine
        .handles
        .iter()
        .find(|(h, id)| machine.nodes.get(id).is_none_or(|n| n.handle.as_ref() != Some(h)));
    match dangling {
        Some(found) => Err(format!("{found:?} leads to a node that does not bear it")),
        None => Ok(()),
    }
}

/// A node's count of pending mutations is what is in the stream.
fn check_pending(machine: &Machine, node: &crate::node::Node) -> Result<(), String> {
    let names = |op: &Op| op.nodes().contains(&Some(node.id));
    let sent = machine.stream.kept.iter().filter(|k| k.stage != crate::queue::Stage::Executed);
    let sent = sent.flat_map(|k| &k.ops).filter(|q| names(&q.op)).count();
    let unsent = machine.stream.unsent.iter().filter(|q| names(&q.op)).count();
    if sent + unsent != node.pending as usize {
        return Err(format!("{:?}: {} pending, {sent} sent and {unsent} not", node.id, node.pending));
    }
    Ok(())
}

/// Whether the kernel is to drop pages of some file when it has had them for long enough.
#[must_use]
pub fn drops_pages(machine: &Machine) -> bool {
    !machine.drops.is_empty()
}

/// What is relied on of each object that the server has named, in the order of the handles: for who watches that nobody else does.
#[must_use]
pub fn held(machine: &Machine) -> Vec<(Handle, CapSet)> {
    let held = machine.nodes.values().filter(|node| !node.held.is_empty() && !node.is_over);
    let mut all: Vec<_> = held.filter_map(|node| Some((node.handle.clone()?, node.held))).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}
