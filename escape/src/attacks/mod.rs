//! The attacks, one module for each wall they aim at.

mod burrow;
mod calls;
mod credentials;
mod descriptors;
mod egress;
mod files;
mod first;
mod floods;
mod greetings;
mod keys;
mod life;
mod local;
mod mounts;
mod names;
mod namespaces;
mod neighbours;
mod network;
mod objects;
mod outward;
mod padded;
pub(crate) mod privileges;
mod programs;
mod secrets;
mod sockets;
mod staged;
mod system;
mod terminal;
mod tokens;
mod web;
mod writes;

use crate::attack::Attack;

/// Every attack.
pub(crate) static TABLES: &[&[Attack]] = &[
    files::TABLE,
    descriptors::TABLE,
    first::TABLE,
    system::TABLE,
    namespaces::TABLE,
    mounts::TABLE,
    neighbours::TABLE,
    keys::TABLE,
    sockets::TABLE,
    local::TABLE,
    network::TABLE,
    egress::TABLE,
    names::TABLE,
    web::TABLE,
    greetings::TABLE,
    credentials::TABLE,
    tokens::TABLE,
    padded::TABLE,
    life::TABLE,
    calls::TABLE,
    privileges::TABLE,
    programs::TABLE,
    terminal::TABLE,
    objects::TABLE,
    secrets::TABLE,
    floods::TABLE,
    writes::NAMES,
    writes::TYPES,
    writes::HANDLES,
    writes::RACES,
    writes::MOUNTS,
    writes::CROWDS,
    staged::TABLE,
    outward::TABLE,
];
