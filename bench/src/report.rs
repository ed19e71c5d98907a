//! The results, for people and for programs.

use crate::book::{Book, Row, Seen, Summary, micros};
use crate::site::Site;
use crate::{daemon, files, life, memory, network, start, steady};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// A promise about speed or size.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// What it may be at most, or must be at least.
    bound: Bound,
    unit: &'static str,
    /// By medians: this is what counts.
    measured: Option<f64>,
    /// By the shortest times, which a busy machine changes least.
    best: Option<f64>,
}

/// On which side of a number something is to be.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Target {
    pub(crate) fn new(name: &'static str, bound: Bound, unit: &'static str, pair: Pair) -> Self {
        let (measured, best) = pair.unzip();
        Self { name, bound, unit, measured, best }
    }

    pub(crate) fn verdict(&self) -> &'static str {
        match (self.bound, self.measured) {
            (_, None) => "not measured",
            (Bound::AtMost(bound), Some(measured)) if measured <= bound => "met",
            (Bound::AtLeast(bound), Some(measured)) if measured >= bound => "met",
            (Bound::AtMost(_) | Bound::AtLeast(_), Some(_)) => "MISSED",
        }
    }

    fn bound(&self) -> String {
        match self.bound {
            Bound::AtMost(bound) => format!("≤ {bound}"),
            Bound::AtLeast(bound) => format!("≥ {bound}"),
        }
    }
}

/// A median and a shortest time, or a ratio of each.
pub(crate) type Pair = Option<(f64, f64)>;

fn targets(book: &Book) -> Vec<Target> {
    let time = |name: &str| {
        book.summary(name).map(|summary| (micros(summary.median), micros(summary.min)))
    };
    let ratio = |name: &str, base: &str| {
        let ((median, min), (of_median, of_min)) = (time(name)?, time(base)?);
        Some((median / of_median, min / of_min))
    };
    let milli = |name: &str| time(name).map(|(median, min)| (median / 1000.0, min / 1000.0));
    let engine_part = |name: &str| {
        let ((median, min), (of_median, of_min)) = (time(name)?, time(life::ROUND)?);
        Some((median - of_median, min - of_min))
    };
    let value = |number: Option<f64>| number.map(|number| (number, number));
    let most = |name, bound, unit, pair| Target::new(name, Bound::AtMost(bound), unit, pair);
    let idle = book.number(memory::CHARGED).or_else(|| book.number(memory::PRIVATE));
    let reads = value(book.number(steady::READS));
    let mut targets = vec![
        most("warm exec of a no-op", 1.6, "units", ratio(start::WARM, start::UNIT)),
        most("warm exec of true", 1.25, "× plain", ratio(start::WARM_TRUE, start::PLAIN_TRUE)),
        most("cold session", 10.0, "units", ratio(start::COLD, start::UNIT)),
        most("session made in advance, engine", 2.0, "units", ratio(life::FURNISHED, start::UNIT)),
        most("grant, less the way to the keeper", 50.0, "µs", engine_part(life::GRANT)),
        most("revoke", 0.3, "ms", milli(life::REVOKE)),
        most("revoke with holders killed", 10.0, "ms", milli(life::REVOKE_HELD)),
        most("pause of 20 processes", 0.5, "ms", milli(life::PAUSE)),
        most("resume of 20 processes", 0.5, "ms", milli(life::RESUME)),
        most("end with 20 processes", 1.0, "ms", milli(life::TEARDOWN)),
        most("idle session", 0.5, "MiB", value(idle)),
        Target::new("reads in a grant", Bound::AtLeast(0.95), "of native", reads),
    ];
    targets.extend(daemon_targets(book));
    targets.extend(network_targets(book));
    targets.extend(decision_targets(book));
    targets.extend(files::promises(book));
    targets
}

/// The promises about what goes through the daemon, by what was measured in the same turns.
fn daemon_targets(book: &Book) -> Vec<Target> {
    let time = |name: &str| {
        let summary = book.summary_in(daemon::TITLE, name);
        summary.map(|summary| (micros(summary.median), micros(summary.min)))
    };
    let ratio = |name: &str, base: &str| {
        let ((median, min), (of_median, of_min)) = (time(name)?, time(base)?);
        Some((median / of_median, min / of_min))
    };
    let beyond_client = || {
        let ((exec, exec_min), (own, own_min)) = (time(daemon::EXEC_TRUE)?, time(daemon::CLIENT)?);
        let (plain, plain_min) = time(start::PLAIN_TRUE)?;
        Some(((exec - own) / plain, (exec_min - own_min) / plain_min))
    };
    let (most, least) = (Bound::AtMost, Bound::AtLeast);
    let bwrap = ratio(daemon::EXEC_TRUE, start::BWRAP_TRUE);
    let srt = ratio(daemon::SRT, daemon::EXEC);
    let pooled = ratio(daemon::POOLED, start::UNIT);
    vec![
        Target::new("cowork exec of true, less the client", most(3.0), "× plain", beyond_client()),
        Target::new("cowork exec of true", most(1.0), "× bwrap", bwrap),
        Target::new("srt, against cowork exec of a no-op", least(20.0), "× cowork", srt),
        Target::new("session from the pool, API", most(2.0), "units", pooled),
    ]
}

/// The promises about the way out of a session.
fn network_targets(book: &Book) -> Vec<Target> {
    use network::{
        BY_ADDRESS, BY_NAME, CONNECT, DIRECT, SOCATS, SOCATS_OURS, SRT, TLS_DIRECT, TLS_INSPECTED,
        TLS_MITMPROXY, bulk, cold, crowd, kept, new,
    };
    let time = |name: String| {
        let summary = book.summary_in(network::TITLE, &name);
        summary.map(|summary| (micros(summary.median), micros(summary.min)))
    };
    let ratio = |name: String, base: String| {
        let ((median, min), (of_median, of_min)) = (time(name)?, time(base)?);
        Some((median / of_median, min / of_min))
    };
    let look_up = || {
        let ((named, named_min), (known, known_min)) =
            (time(new(BY_NAME))?, time(new(BY_ADDRESS))?);
        Some((named - known, named_min - known_min))
    };
    let number = |name: String| book.number(&name).map(|number| (number, number));
    let processor = || {
        let (ours, _) = number(network::processor(BY_ADDRESS))?;
        let (direct, _) = number(network::processor(DIRECT))?;
        (direct > 0.0).then(|| (ours / direct, ours / direct))
    };
    let most = |name, bound, unit, pair| Target::new(name, Bound::AtMost(bound), unit, pair);
    let least = |name, bound, unit, pair| Target::new(name, Bound::AtLeast(bound), unit, pair);
    vec![
        least("tunnel: bulk", 0.8, "× direct", ratio(bulk(DIRECT), bulk(BY_ADDRESS))),
        most("tunnel: processor time per byte", 1.3, "× direct", processor()),
        most("tunnel: new connection", 2.5, "× direct", ratio(new(BY_ADDRESS), new(DIRECT))),
        most("tunnel: kept connection", 2.2, "× direct", ratio(kept(BY_ADDRESS), kept(DIRECT))),
        least("tunnel: connections/s", 0.6, "× direct", ratio(crowd(DIRECT), crowd(BY_ADDRESS))),
        most("look-up of a name, for each connection", 150.0, "µs", look_up()),
        least("two socats: bulk", 6.0, "× cowork", ratio(bulk(SOCATS), bulk(BY_ADDRESS))),
        least("two socats: new connection", 5.0, "× cowork", ratio(new(SOCATS), new(BY_ADDRESS))),
        least("two socats: connections", 5.0, "× cowork", ratio(crowd(SOCATS), crowd(BY_ADDRESS))),
        least("two socats to ours: bulk", 6.0, "× cowork", ratio(bulk(SOCATS_OURS), bulk(CONNECT))),
        least(
            "two socats to ours: new connection",
            5.0,
            "× cowork",
            ratio(new(SOCATS_OURS), new(CONNECT)),
        ),
        least(
            "two socats to ours: connections",
            5.0,
            "× cowork",
            ratio(crowd(SOCATS_OURS), crowd(CONNECT)),
        ),
        least("srt: bulk", 15.0, "× cowork", ratio(bulk(SRT), bulk(CONNECT))),
        least("srt: new connection", 8.0, "× cowork", ratio(new(SRT), new(CONNECT))),
        least("srt: connections", 8.0, "× cowork", ratio(crowd(SRT), crowd(CONNECT))),
        most(
            "inspection: cold connection",
            2.6,
            "× direct",
            ratio(cold(TLS_INSPECTED), new(TLS_DIRECT)),
        ),
        most(
            "inspection: new connection",
            1.7,
            "× direct",
            ratio(new(TLS_INSPECTED), new(TLS_DIRECT)),
        ),
        least("inspection: bulk", 0.8, "× direct", ratio(bulk(TLS_DIRECT), bulk(TLS_INSPECTED))),
        least("mitmproxy: bulk", 4.0, "× cowork", ratio(bulk(TLS_MITMPROXY), bulk(TLS_INSPECTED))),
        least(
            "mitmproxy: new connection",
            8.0,
            "× cowork",
            ratio(new(TLS_MITMPROXY), new(TLS_INSPECTED)),
        ),
        most("idle egress process", 8.0, "MiB", number(network::IDLE.to_owned())),
    ]
}

/// The promises about decisions by many rules.
fn decision_targets(book: &Book) -> [Target; 3] {
    use network::decisions::{OF_HOSTS, OF_OTHERS, OF_PATHS};
    let most = |name, row: &str| {
        let summary = book.summary_in(network::TITLE, row);
        let pair = summary.map(|summary| (micros(summary.median), micros(summary.min)));
        Target::new(name, Bound::AtMost(2.0), "µs", pair)
    };
    [
        most("decision among 1,000 rules about hosts", OF_HOSTS),
        most("decision among 1,000 about one host", OF_PATHS),
        most("the same, where none is about the path", OF_OTHERS),
    ]
}

/// The host, as far as numbers depend on it.
fn host(site: &Site) -> Vec<(&'static str, String)> {
    let uname = rustix::system::uname();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?").to_owned();
    let uid = rustix::process::geteuid().as_raw();
    let unit = match &site.built {
        Ok(()) => "vfork and exec of a static no-op, from a small static program".to_owned(),
        Err(why) => format!("start of /usr/bin/true, because {why}"),
    };
    let build = if cfg!(debug_assertions) {
        "for debugging: times through the client library are too long"
    } else {
        "for release"
    };
    vec![
        ("build of this program", build.to_owned()),
        ("kernel", uname.release().to_string_lossy().into_owned()),
        ("cpus", cpus.to_string()),
        ("load at the end", load),
        ("user", if uid == 0 { "root".to_owned() } else { format!("ordinary ({uid})") }),
        ("unit", unit),
    ]
}

/// The results as text.
pub(crate) fn text(site: &Site, book: &Book) -> String {
    let mut lines = String::new();
    match write(&mut lines, site, book) {
        Ok(()) => lines,
        // Writing to a string cannot fail.
        Err(error) => format!("{lines}{error}\n"),
    }
}

fn write(out: &mut String, site: &Site, book: &Book) -> std::fmt::Result {
    for (name, value) in host(site) {
        writeln!(out, "{name}: {value}")?;
    }
    let mut section = "";
    for row in &book.rows {
        if row.section != section {
            section = &row.section;
            let [n, min, median, p99, units, bwraps] =
                ["n", "min", "median", "p99", "× unit", "× bwrap"];
            writeln!(
                out,
                "\n{section:<48} {n:>5} {min:>10} {median:>10} {p99:>10} {units:>8} {bwraps:>8}"
            )?;
        }
        write_row(out, row, book)?;
    }
    let [name, target, measured, best] = ["target", "at", "by medians", "by minima"];
    writeln!(out, "\n{name:<48} {target:>10} {measured:>12} {best:>12}")?;
    for target in targets(book) {
        let number = |number: Option<f64>| number.map_or("-".into(), |n| format!("{n:.2}"));
        let (measured, best) = (number(target.measured), number(target.best));
        let (name, unit) = (target.name, target.unit);
        let (bound, verdict) = (target.bound(), target.verdict());
        writeln!(out, "{name:<48} {bound:>10} {measured:>12} {best:>12}  {unit:<10} {verdict}")?;
    }
    Ok(())
}

fn write_row(out: &mut String, row: &Row, book: &Book) -> std::fmt::Result {
    let name = &row.name;
    match &row.seen {
        Seen::Times(times) => {
            let Some(summary) = Summary::of(times) else {
                return writeln!(out, "{name:<48} not measured");
            };
            let Summary { n, min, median, p99 } = summary;
            let [min, middle, p99] = [min, median, p99].map(show);
            // What is far below a start is not worth comparing with one.
            let compared = |base: Option<f64>| {
                let ratio = base.map(|base| micros(median) / base).filter(|ratio| *ratio >= 0.1);
                ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"))
            };
            let units = compared(book.base_us(row, start::UNIT));
            let bwraps = compared(book.base_us(row, start::BWRAP));
            writeln!(
                out,
                "{name:<48} {n:>5} {min:>10} {middle:>10} {p99:>10} {units:>8} {bwraps:>8}"
            )
        }
        Seen::Value(number, unit, how) => writeln!(out, "{name:<64} {number:.3} {unit} ({how})"),
        Seen::Absent(why) => writeln!(out, "{name:<48} {why}"),
    }
}

/// A time with its unit.
fn show(time: Duration) -> String {
    let us = micros(time);
    match us {
        us if us < 10.0 => format!("{:.0} ns", us * 1000.0),
        us if us < 10_000.0 => format!("{us:.0} µs"),
        us => format!("{:.1} ms", us / 1000.0),
    }
}

/// The results as JSON; times in microseconds.
pub(crate) fn json(site: &Site, book: &Book) -> Value {
    let host: serde_json::Map<_, _> =
        host(site).into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let targets: Vec<_> = targets(book)
        .iter()
        .map(|target| {
            json!({"name": target.name, "target": target.bound(), "unit": target.unit,
                "measured": target.measured, "best": target.best, "verdict": target.verdict()})
        })
        .collect();
    let rows: Vec<_> = book.rows.iter().map(|row| json_row(row, book)).collect();
    json!({"host": host, "rows": rows, "targets": targets})
}

fn json_row(row: &Row, book: &Book) -> Value {
    let (section, name) = (&row.section, &row.name);
    match &row.seen {
        Seen::Times(times) => {
            let Some(summary) = Summary::of(times) else {
                return json!({"section": section, "name": name, "absent": "not measured"});
            };
            let median = micros(summary.median);
            let compared = |base: &str| book.base_us(row, base).map(|base| median / base);
            json!({
                "section": section,
                "name": name,
                "n": summary.n,
                "min_us": micros(summary.min),
                "median_us": median,
                "p99_us": micros(summary.p99),
                "units": compared(start::UNIT),
                "bwraps": compared(start::BWRAP),
            })
        }
        Seen::Value(number, unit, how) => {
            json!({"section": section, "name": name, "value": number, "unit": unit, "how": how})
        }
        Seen::Absent(why) => json!({"section": section, "name": name, "absent": why}),
    }
}

#[cfg(test)]
mod tests {
    use super::{show, targets};
    use crate::book::Book;
    use crate::{daemon, life, network, start};
    use std::time::Duration;

    #[test]
    fn a_target_is_judged_by_the_ratio_of_medians() {
        let mut book = Book::default();
        book.took(start::UNIT, Duration::from_micros(100));
        book.took(start::WARM, Duration::from_micros(150));
        book.took(start::COLD, Duration::from_micros(1100));
        let verdict = |name: &str| {
            let targets = targets(&book);
            targets.iter().find(|target| target.name == name).unwrap().verdict()
        };
        assert_eq!(verdict("warm exec of a no-op"), "met");
        assert_eq!(verdict("cold session"), "MISSED");
        assert_eq!(verdict("grant, less the way to the keeper"), "not measured");
        book.took(life::GRANT, Duration::from_micros(70));
        book.took(life::ROUND, Duration::from_micros(15));
        let targets = targets(&book);
        let grant = targets.iter().find(|target| target.name.starts_with("grant,")).unwrap();
        assert_eq!((grant.measured, grant.verdict()), (Some(55.0), "MISSED"));
    }

    #[test]
    fn a_target_of_the_daemon_is_judged_by_its_own_turns() {
        let mut book = Book::default();
        let us = Duration::from_micros;
        book.section("another");
        book.took(start::UNIT, us(1000));
        book.section(daemon::TITLE);
        for (name, time) in [
            (start::UNIT, 100),
            (start::PLAIN_TRUE, 600),
            (start::BWRAP_TRUE, 5000),
            (daemon::CLIENT, 1000),
            (daemon::EXEC, 2500),
            (daemon::EXEC_TRUE, 2700),
            (daemon::POOLED, 250),
            (daemon::SRT, 49_000),
        ] {
            book.took(name, us(time));
        }
        let judged = |name: &str| {
            let targets = targets(&book);
            let target = targets.iter().find(|target| target.name == name).unwrap();
            (format!("{:.2}", target.measured.unwrap()), target.verdict())
        };
        assert_eq!(judged("cowork exec of true, less the client"), ("2.83".into(), "met"));
        assert_eq!(judged("cowork exec of true"), ("0.54".into(), "met"));
        assert_eq!(judged("srt, against cowork exec of a no-op"), ("19.60".into(), "MISSED"));
        assert_eq!(judged("session from the pool, API"), ("2.50".into(), "MISSED"));
    }

    #[test]
    fn a_way_out_is_judged_by_its_likes() {
        let mut book = Book::default();
        book.section(network::TITLE);
        for (name, time) in [
            (network::bulk(network::DIRECT), 100),
            (network::bulk(network::BY_ADDRESS), 110),
            (network::bulk(network::SOCATS), 550),
            (network::new(network::DIRECT), 100),
            (network::new(network::BY_ADDRESS), 260),
            (network::new(network::BY_NAME), 400),
        ] {
            book.took(&name, Duration::from_micros(time));
        }
        let judged = |name: &str| {
            let targets = targets(&book);
            let target = targets.iter().find(|target| target.name == name).unwrap();
            (target.measured.map(|number| format!("{number:.2}")), target.verdict())
        };
        assert_eq!(judged("tunnel: bulk"), (Some("0.91".into()), "met"));
        assert_eq!(judged("tunnel: new connection"), (Some("2.60".into()), "MISSED"));
        assert_eq!(judged("two socats: bulk"), (Some("5.00".into()), "MISSED"));
        let look_up = judged("look-up of a name, for each connection");
        assert_eq!(look_up, (Some("140.00".into()), "met"));
        assert_eq!(judged("idle egress process"), (None, "not measured"));
    }

    #[test]
    fn times_are_shown_with_a_fitting_unit() {
        assert_eq!(show(Duration::from_nanos(90)), "90 ns");
        assert_eq!(show(Duration::from_micros(152)), "152 µs");
        assert_eq!(show(Duration::from_millis(27)), "27.0 ms");
    }
}
