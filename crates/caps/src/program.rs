//! The caps program: from calls to what is asked of the server, and back.

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_rpc::{Auth, Call, Connection, Lane as PoolLane, Mode, Outcome, PendingReply, Program};
use holdfast_wire::caps::{
    AccessListArgs, AcquireArgs, AcquireOk, BatchArgs, ByeArgs, CAPS_PROGRAM, CAPS_V1, CapsProc, CapsStat,
    DescriptorArgs, HelloArgs, ListArgs, LookupArgs, NamelessArgs, PoolArgs, ReclaimArgs, ReleaseArgs, Res,
    SameHostArgs, StableArgs, Ticket, WhoAmIArgs,
};
use holdfast_xdr::{Decode, Encode, Reader, Writer, from_bytes};

use crate::Caps;
use crate::batch::Head;
use crate::lane::Lane;
use crate::members::Member;
use crate::site::Actor;

/// The caps program, version 1.
#[derive(Clone, Debug)]
pub struct CapsProgram(pub Arc<Caps>);

/// Answers a call that was held back with a status.
pub(crate) fn refuse(mut pending: PendingReply, stat: CapsStat) {
    pending.reset();
    stat.as_u32().encode(pending.writer());
    pending.send();
}

/// Arguments that do not decode.
struct Garbage;

impl From<holdfast_xdr::Error> for Garbage {
    fn from(_: holdfast_xdr::Error) -> Self {
        Self
    }
}

impl Program for CapsProgram {
    fn number(&self) -> u32 {
        CAPS_PROGRAM
    }

    fn versions(&self) -> (u32, u32) {
        (CAPS_V1, CAPS_V1)
    }

    fn serves(&self, peer: IpAddr) -> Option<bool> {
        Some(self.0.parts.namespace.serves(peer))
    }

    fn lane(&self, _: u32, _: Reader<'_>) -> Option<PoolLane> {
        None
    }

    fn call(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        let Some(procedure) = CapsProc::from_u32(call.procedure) else {
            return self.of_another_life(call, reply).unwrap_or(Outcome::NoProcedure);
        };
        if procedure == CapsProc::Null {
            return Outcome::Reply;
        }
        // Leases are taken, directories read, others waited for.
        if call.mode == Mode::Inline {
            return Outcome::Offload;
        }
        if call.auth.sys().is_none() && **call.auth != Auth::None {
            return Outcome::WeakAuth;
        }
        let is_hello = procedure == CapsProc::Hello;
        self.run(procedure, call, reply).unwrap_or_else(|Garbage| {
            let said = if is_hello { None } else { self.of_another_life(call, reply) };
            said.unwrap_or(Outcome::Garbage)
        })
    }

    fn connection_closed(&self, connection: &Arc<Connection>) {
        self.0.lost_connection(connection);
    }

    fn quiesce(&self) {
        self.0.put_off_all();
    }

    fn connection_adopted(&self, connection: &Arc<Connection>) {
        self.0.connection_adopted(connection);
    }
}

impl CapsProgram {
    /// What cannot be read may be what another server knows, in whose place this one has come: by a ticket of that one its client is to
    /// say HELLO, and hear what this one knows.
    fn of_another_life(&self, call: &Call<'_>, reply: &mut Writer) -> Option<Outcome> {
        let ticket = Ticket::decode(&mut Reader::new(call.args.rest())).ok()?;
        if self.0.members.of(ticket).is_some() {
            return None;
        }
        CapsStat::BadTicket.as_u32().encode(reply);
        Some(Outcome::Reply)
    }

    fn run(&self, procedure: CapsProc, call: &Call<'_>, reply: &mut Writer) -> Result<Outcome, Garbage> {
        let start = reply.len();
        let args = call.args.rest();
        let caps = &*self.0;
        let said = match procedure {
            CapsProc::Null => Ok(()),
            CapsProc::Hello => return self.hello(call, reply),
            CapsProc::Acquire => {
                let args = from_bytes::<AcquireArgs<'_>>(args)?;
                let actor = self.after_grace(args.ticket, call);
                actor.and_then(|actor| here(caps.acquire(&actor, &args.items), reply))
            }
            CapsProc::Release => {
                let args = from_bytes::<ReleaseArgs<'_>>(args)?;
                let actor = self.actor(args.ticket, call, Admitted::Always);
                actor.map(|actor| Res::Ok(caps.release(&actor, &args.items)).encode(reply))
            }
            CapsProc::Lookup | CapsProc::Find => {
                let args = from_bytes::<LookupArgs<'_>>(args)?;
                let look = if procedure == CapsProc::Find { Caps::find } else { Caps::lookup };
                self.after_grace(args.ticket, call).and_then(|actor| look(caps, &actor, &args, reply))
            }
            CapsProc::List => {
                let args = from_bytes::<ListArgs<'_>>(args)?;
                self.after_grace(args.ticket, call).and_then(|actor| caps.list(&actor, &args, reply))
            }
            CapsProc::Reclaim => {
                let args = from_bytes::<ReclaimArgs<'_>>(args)?;
                let actor = self.actor(args.ticket, call, Admitted::Always);
                actor.and_then(|actor| here(caps.reclaim(&actor, &args.items), reply))
            }
            CapsProc::WhoAmI => {
                let args = from_bytes::<WhoAmIArgs<'_>>(args)?;
                let actor = self.actor(args.ticket, call, Admitted::Always);
                let said = actor.and_then(|actor| caps.who_am_i(&actor, args.handle.0));
                said.map(|ok| Res::Ok(ok).encode(reply))
            }
            CapsProc::SameHost => {
                let args = from_bytes::<SameHostArgs>(args)?;
                let said = self.after_grace(args.ticket, call).and_then(|actor| caps.same_host(&actor));
                said.map(|ok| Res::Ok(ok).encode(reply))
            }
            CapsProc::Descriptor => {
                let args = from_bytes::<DescriptorArgs<'_>>(args)?;
                let said =
                    self.after_grace(args.ticket, call).and_then(|actor| caps.descriptor(&actor, &args));
                said.map(|ok| Res::Ok(ok).encode(reply))
            }
            CapsProc::Nameless => {
                let args = from_bytes::<NamelessArgs<'_>>(args)?;
                self.after_grace(args.ticket, call).and_then(|actor| caps.make_nameless(&actor, &args, reply))
            }
            CapsProc::AccessList => self.access_list(call, reply)?,
            CapsProc::Pool => {
                let args = from_bytes::<PoolArgs<'_>>(args)?;
                self.after_grace(args.ticket, call).and_then(|actor| caps.pool(&actor, &args, reply))
            }
            CapsProc::Bye => {
                let args = from_bytes::<ByeArgs>(args)?;
                let said = caps.member(args.ticket).map(|member| caps.bye(args.ticket, member));
                said.map(|()| CapsStat::Ok.as_u32().encode(reply))
            }
            CapsProc::Batch => return self.batch(call, reply),
            CapsProc::Stable => return self.stable(call, reply),
        };
        if let Err(stat) = said {
            reply.truncate(start);
            stat.as_u32().encode(reply);
        }
        Ok(Outcome::Reply)
    }

    fn access_list(&self, call: &Call<'_>, reply: &mut Writer) -> Result<Result<(), CapsStat>, Garbage> {
        let args = from_bytes::<AccessListArgs<'_>>(call.args.rest())?;
        let actor = self.after_grace(args.ticket, call);
        Ok(actor.and_then(|actor| self.0.access_list(&actor, &args, reply)))
    }

    /// Answers first, so that no recall overtakes what the client is to know it by.
    fn hello(&self, call: &Call<'_>, reply: &mut Writer) -> Result<Outcome, Garbage> {
        let args = from_bytes::<HelloArgs>(call.args.rest())?;
        match self.0.hello(&args, call.connection) {
            Ok((ok, client)) => {
                Res::Ok(ok).encode(reply);
                let caps = Arc::clone(&self.0);
                Ok(Outcome::Park(Box::new(move |pending| {
                    pending.send();
                    caps.can_be_called(client);
                })))
            }
            Err(stat) => {
                stat.as_u32().encode(reply);
                Ok(Outcome::Reply)
            }
        }
    }

    fn batch(&self, call: &Call<'_>, reply: &mut Writer) -> Result<Outcome, Garbage> {
        let head = Head::decode(&mut Reader::new(call.args.rest()))?;
        // What does not decode must not keep others waiting for its turn.
        drop(from_bytes::<BatchArgs<'_>>(call.args.rest())?);
        let (actor, lane) = match self.held_back(head.ticket, call) {
            Ok((actor, _, lane)) => (actor, lane),
            Err(stat) => {
                stat.as_u32().encode(reply);
                return Ok(Outcome::Reply);
            }
        };
        let (caps, args) = (Arc::clone(&self.0), call.keep_args());
        Ok(Outcome::Park(Box::new(move |pending| caps.submit(actor, &lane, (head, args), pending))))
    }

    fn stable(&self, call: &Call<'_>, reply: &mut Writer) -> Result<Outcome, Garbage> {
        let args = from_bytes::<StableArgs>(call.args.rest())?;
        let lane = match self.held_back(args.ticket, call) {
            Ok((.., lane)) => lane,
            Err(stat) => {
                stat.as_u32().encode(reply);
                return Ok(Outcome::Reply);
            }
        };
        let caps = Arc::clone(&self.0);
        Ok(Outcome::Park(Box::new(move |pending| caps.stable(&lane, &args, pending))))
    }

    /// Who calls, and his transactions, for a call whose reply is held back.
    fn held_back(&self, ticket: Ticket, call: &Call<'_>) -> Result<(Actor, Member, Arc<Lane>), CapsStat> {
        let member = self.0.member(ticket)?;
        if !call.connection.may_park() {
            return Err(CapsStat::Delay);
        }
        let lane = self.0.lane(&member.incarnation).ok_or(CapsStat::BadTicket)?;
        Ok((Self::actor_of(member, call), member, lane))
    }

    fn actor(&self, ticket: Ticket, call: &Call<'_>, admitted: Admitted) -> Result<Actor, CapsStat> {
        let member = self.0.member(ticket)?;
        if admitted == Admitted::AfterGrace
            && self.0.parts.manager.quiet(|engine, now| engine.grace().is_on(now))
        {
            return Err(CapsStat::Grace);
        }
        Ok(Self::actor_of(member, call))
    }

    fn after_grace(&self, ticket: Ticket, call: &Call<'_>) -> Result<Actor, CapsStat> {
        self.actor(ticket, call, Admitted::AfterGrace)
    }

    fn actor_of(member: Member, call: &Call<'_>) -> Actor {
        Actor { client: member.client, auth: Arc::clone(call.auth), peer: call.connection.peer() }
    }
}

/// Answers; of what is served elsewhere the whole call says so, for its caller has to go there, and asks there.
fn here(said: AcquireOk, reply: &mut Writer) -> Result<(), CapsStat> {
    let is_elsewhere = |item: &_| matches!(item, Res::Failed(stat) if *stat == CapsStat::Moved.as_u32());
    if said.items.iter().any(is_elsewhere) {
        return Err(CapsStat::Moved);
    }
    Res::Ok(said).encode(reply);
    Ok(())
}

/// When a procedure is served.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Admitted {
    Always,
    AfterGrace,
}
