//! The same load, while every program is killed now and then.

use crate::look::Process;
use crate::site::lock;
use crate::world::{Dice, World};
use crate::{load, remains, settle};
use cowork_client::http::Client;
use cowork_client::types::{Network, Session};
use cowork_testbed::Person;
use rustix::process::Signal;
use std::time::Duration;

/// How many sessions live at once at the peak, at least: all of a keeper's die with it.
const PEAK: usize = 25;

/// What is acknowledged stays, whoever dies.
pub(crate) fn faults(person: Person) {
    let world = World::new(person, load::MOST).with_faults();
    let started = load::run(&world, || disturb(&world));
    world.demand_peak(PEAK);
    settle::settle(&world, &started);
    remains::check(&world);
}

/// How many programs there are.
const PROGRAMS: u64 = 5;

/// Kills one program after the other.
fn disturb(world: &World) {
    let mut dice = Dice::new(world.seed, 77);
    let mut next = dice.below(PROGRAMS);
    let mut times = 0;
    while world.goes_on() {
        for _ in 0..10 + dice.below(20) {
            world.site.note_keeper();
            std::thread::sleep(Duration::from_millis(100));
        }
        match next {
            0 => {
                world.tell("killed: coworkd");
                world.site.kill();
                std::thread::sleep(Duration::from_millis(dice.below(300)));
                world.site.start();
            }
            1 => {
                if let Some(keeper) = world.site.keeper() {
                    world.tell("killed: keeper");
                    world.site.note_keeper();
                    keeper.signal(Signal::KILL);
                }
            }
            2 => kill_init(world, &mut dice),
            3 => kill_egress(world),
            _ => kill_broker(world, &mut dice),
        }
        times += 1;
        // Each of them once, then any.
        next = if times < PROGRAMS { (next + 1) % PROGRAMS } else { dice.below(PROGRAMS) };
    }
}

fn kill_init(world: &World, dice: &mut Dice) {
    let Some(known) = dice.pick(&lock(&world.sessions)).cloned() else { return };
    let Ok(mut client) = Client::connect(&world.site.socket()) else { return };
    let Ok(session) = client.get::<Session>(known.at("")) else { return };
    let init = session.sandbox.and_then(|sandbox| Process::look(sandbox.pid));
    if let Some(init) = init.filter(|init| init.name == "cowork-init") {
        world.tell("killed: cowork-init");
        init.signal(Signal::KILL);
    }
}

/// Kills the way out of a session that has one.
fn kill_egress(world: &World) {
    let Ok(mut client) = Client::connect(&world.site.socket()) else { return };
    let sessions = lock(&world.sessions).clone();
    let found = sessions.iter().find_map(|known| {
        let network = client.get::<Network>(known.at("/network")).ok()?;
        Process::look(network.egress?.pid).filter(|process| process.name == "cowork-egress")
    });
    if let Some(egress) = found {
        world.tell("killed: cowork-egress");
        egress.signal(Signal::KILL);
    }
}

/// Kills the broker of any session, which is a child of the keeper.
fn kill_broker(world: &World, dice: &mut Dice) {
    let Some(keeper) = world.site.keeper() else { return };
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", keeper.pid));
    let children = children.unwrap_or_default();
    let is_broker = |process: &Process| {
        let words = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        words.starts_with(b"cowork-broker\0")
    };
    let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    let brokers: Vec<Process> = pids.filter_map(Process::look).filter(is_broker).collect();
    if let Some(broker) = dice.pick(&brokers) {
        world.tell("killed: cowork-broker");
        broker.signal(Signal::KILL);
    }
}
