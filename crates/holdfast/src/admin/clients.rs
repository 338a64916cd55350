//! `holdfast clients`.

use std::fmt::{self, Display, Formatter};

use anyhow::Result;
use holdfast_admin::report::{Client, Taken};
use holdfast_admin::request::{ClientsWanted, Request};

use super::args::{ClientsArgs, ClientsCommand};
use super::table::{Table, duration, number};

pub(crate) fn run(args: &ClientsArgs) -> Result<()> {
    let mut server = args.asking.connect()?;
    if let Some(ClientsCommand::Revoke { client }) = &args.command {
        let taken: Taken = server.ask(Request::Revoke { client: client.clone() })?;
        return args.asking.show(&taken, people_taken);
    }
    let clients = server.clients(ClientsWanted { client: args.client.clone(), after: None })?;
    args.asking.show(&clients, |clients| People(clients.clone()))
}

/// Clients for people.
pub(super) struct People(pub(super) Vec<Client>);

impl Display for People {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&[
            "ID",
            "NAME",
            "ADDRESS",
            "PROTOCOL",
            "LEASE",
            "BACK CHANNEL",
            "#OPENS",
            "#LOCKS",
            "#DELEGATIONS",
            "#CAPABILITIES",
            "SILENT FOR",
        ]);
        for client in &self.0 {
            table.row([
                client.id.clone(),
                client.name.clone(),
                client.addresses.join(","),
                client.protocol.clone(),
                lease(client),
                client.back_channel.clone(),
                number(client.opens),
                number(client.locks),
                with_recalled(client.delegations, client.recalled),
                with_recalled(client.capabilities, client.capabilities_recalled),
                client.idle_ms.map(duration).unwrap_or_default(),
            ]);
        }
        if table.is_empty() { f.write_str("no clients\n") } else { table.fmt(f) }
    }
}

fn lease(client: &Client) -> String {
    if client.is_courteous {
        return "ran out, courteous".into();
    }
    if !client.is_confirmed {
        return "unconfirmed".into();
    }
    client.lease_left_ms.map(|ms| format!("{} left", duration(ms))).unwrap_or_default()
}

fn with_recalled(held: u64, recalled: u64) -> String {
    match recalled {
        0 => number(held),
        recalled => format!("{} ({} recalled)", number(held), number(recalled)),
    }
}

/// What was taken, for people.
pub(super) fn people_taken(taken: &Taken) -> String {
    let holdings = match taken.holdings {
        0 => "nothing was held".to_owned(),
        1 => "1 open, lock or delegation taken".to_owned(),
        n => format!("{} opens, locks and delegations taken", number(n)),
    };
    match taken.clients.as_slice() {
        [] => format!("{holdings}\n"),
        clients => format!("revoked {}; {holdings}\n", clients.join(", ")),
    }
}
