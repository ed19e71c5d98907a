//! The same load, while every program is killed now and then.

use crate::look::Process;
use crate::site::lock;
use crate::world::{Dice, World};
use crate::{load, remains, settle};
use cowork_client::http::Client;
use cowork_client::types::Session;
use cowork_testbed::Person;
use rustix::process::Signal;
use std::time::Duration;

/// What is acknowledged stays, whoever dies.
pub(crate) fn faults(person: Person) {
    let world = World::new(person, 24).with_faults();
    let started = load::run(&world, || disturb(&world));
    settle::settle(&world, &started);
    remains::check(&world);
}

/// Kills one program after the other.
fn disturb(world: &World) {
    let mut dice = Dice::new(world.seed, 77);
    let mut next = dice.below(3);
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
            _ => kill_init(world, &mut dice),
        }
        times += 1;
        // Each of them once, then any.
        next = if times < 3 { (next + 1) % 3 } else { dice.below(3) };
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
