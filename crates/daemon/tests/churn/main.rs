//! A hundred sessions at once, in the hands of several clients who do everything at random, over the
//! socket and with the program `cowork`; and as many while every program is killed now and then. At
//! the end: nothing is left, the audit is whole, and every byte is accounted for.
//!
//! `COWORK_CHURN_SECONDS` says how long the load lasts, `COWORK_CHURN_SEED` how it starts, and
//! `COWORK_CHURN_SESSIONS` how many sessions there are at most.

#![forbid(unsafe_code)]

#[cfg(test)]
mod client;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod load;
#[cfg(test)]
#[expect(dead_code, reason = "shared with the tests of the daemon, which use all of it")]
#[path = "../daemon/look.rs"]
mod look;
#[cfg(test)]
mod remains;
#[cfg(test)]
mod settle;
#[cfg(test)]
#[expect(dead_code, reason = "shared with the tests of the daemon, which use all of it")]
#[path = "../daemon/site.rs"]
mod site;
#[cfg(test)]
mod typist;
#[cfg(test)]
mod work;
#[cfg(test)]
mod world;

#[cfg(test)]
mod as_root {
    use cowork_testbed::Person;

    #[test]
    fn churn() {
        crate::load::churn(Person::Root);
    }

    #[test]
    fn faults() {
        crate::faults::faults(Person::Root);
    }
}

#[cfg(test)]
mod as_user {
    use cowork_testbed::Person;

    #[test]
    fn churn() {
        crate::load::churn(Person::User);
    }

    #[test]
    fn faults() {
        crate::faults::faults(Person::User);
    }
}
