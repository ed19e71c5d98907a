//! Claims about limits, as data.

use super::*;
use proptest::prelude::*;

/// Reads a text and shows what was read, or the sentence that refuses it.
#[track_caller]
fn check<T>(text: &str, expected: Result<T, &str>)
where
    T: FromStr<Err: fmt::Display> + fmt::Debug + PartialEq,
{
    let read = text.parse::<T>().map_err(|error| error.to_string());
    assert_eq!(read, expected.map_err(str::to_owned), "{text:?}");
}

#[test]
fn sizes_are_whole_numbers_of_powers_of_1024() {
    for (text, bytes) in [
        ("0", 0),
        ("1", 1),
        ("007", 7),
        ("512B", 512),
        ("1K", 1024),
        ("512M", 512 * MIB),
        ("512m", 512 * MIB),
        ("512MB", 512 * MIB),
        ("512MiB", 512 * MIB),
        ("4G", 4 * GIB),
        ("2TiB", 2 * TIB),
        ("18446744073709551615", u64::MAX),
    ] {
        check(text, Ok(Bytes(bytes)));
    }
}

#[test]
fn other_sizes_are_refused() {
    for text in ["", "M", "-1", "+1", "1 M", " 1M", "1iB", "1X", "1MM", "1.", "1.M", "٣", "1\n"] {
        let sentence = format!(
            "`{}` is not a size: write a whole number and K, M, G or T, e.g. `512M`",
            text.escape_debug()
        );
        check::<Bytes>(text, Err(&sentence));
    }
    check::<Bytes>(
        "1.5G",
        Err("size `1.5G` is not a whole number: write a smaller unit, e.g. `1536M` for 1.5G"),
    );
    for text in ["18446744073709551616", "16777216T"] {
        check::<Bytes>(text, Err(&format!("size `{text}` is too large")));
    }
}

#[test]
fn sizes_are_shown_exactly_or_rounded() {
    for (bytes, exact, round) in [
        (0, "0", "0"),
        (1, "1", "1"),
        (1023, "1023", "1023"),
        (1024, "1K", "1K"),
        (1536, "1536", "1.5K"),
        (512 * MIB, "512M", "512M"),
        (3 * GIB / 2, "1536M", "1.5G"),
        (4 * GIB + 1, "4294967297", "4G"),
        (25_190_473_728, "24600072K", "23.5G"),
        (u64::MAX, "18446744073709551615", "16777216T"),
    ] {
        assert_eq!(format!("{} {:#}", Bytes(bytes), Bytes(bytes)), format!("{exact} {round}"));
    }
}

#[test]
fn processors_are_counted_in_thousandths() {
    for (text, millis, shown) in [
        ("2", 2000, "2"),
        ("0.5", 500, "0.5"),
        ("1.25", 1250, "1.25"),
        ("0.001", 1, "0.001"),
        ("1.000000", 1000, "1"),
        ("10", 10_000, "10"),
        ("4294967.295", u32::MAX, "4294967.295"),
    ] {
        let cpus = Cpus::from_millis(millis).unwrap();
        check(text, Ok(cpus));
        assert_eq!((cpus.millis(), cpus.to_string().as_str()), (millis, shown));
    }
}

#[test]
fn other_shares_of_processors_are_refused() {
    for text in ["", ".", ".5", "2.", "-1", "+1", "1e3", "1,5", "1.2.3", "two", "1 "] {
        let sentence = format!("`{text}` is not a number of CPUs: write e.g. `2` or `0.5`");
        check::<Cpus>(text, Err(&sentence));
    }
    for text in ["0", "0.0", "0.000", "00"] {
        check::<Cpus>(text, Err("the number of CPUs is zero"));
    }
    check::<Cpus>("0.0001", Err("`0.0001` CPUs is finer than a thousandth of a CPU"));
    check::<Cpus>("4294967.296", Err("`4294967.296` CPUs is too large"));
}

#[test]
fn spans_are_whole_numbers_of_a_unit() {
    for (text, millis, shown) in [
        ("0", 0, "0ms"),
        ("250ms", 250, "250ms"),
        ("1000ms", 1000, "1s"),
        ("90", 90_000, "90s"),
        ("90s", 90_000, "90s"),
        ("60s", 60_000, "1m"),
        ("5m", 300_000, "5m"),
        ("2h", 7_200_000, "2h"),
        ("1d", 86_400_000, "1d"),
        ("36h", 129_600_000, "36h"),
    ] {
        let span = Span::from_millis(millis);
        check(text, Ok(span));
        assert_eq!(span.to_string(), shown);
        assert_eq!(span.duration(), Duration::from_millis(millis));
    }
}

#[test]
fn other_spans_are_refused() {
    for text in ["", "s", "-1s", "+1s", "1.5h", "1h30m", "1 s", "1S", "1M", "1w", "forever"] {
        let sentence = format!(
            "`{text}` is not a span of time: write a whole number and ms, s, m, h or d, \
             e.g. `90s`"
        );
        check::<Span>(text, Err(&sentence));
    }
    check::<Span>("213503982335d", Err("span of time `213503982335d` is too long"));
}

#[test]
fn a_limit_knows_where_it_comes_from() {
    let (asked, default) = (Limit::asked(7), Limit::default_of(7));
    assert_eq!((asked.value(), asked.origin()), (7, Origin::Asked));
    assert_eq!((default.value(), default.origin()), (7, Origin::Default));
    assert_ne!(asked, default);
}

fn host(cpus: u32, memory: &str, max_processes: u32, max_open_files: u32) -> HostSize {
    HostSize { cpus, memory: memory.parse().unwrap(), max_processes, max_open_files }
}

#[must_use]
fn described(limits: &Limits) -> String {
    let Limits { processes, memory, cpus, open_files, scratch, wall } = limits;
    let origins = [processes.origin, memory.origin, cpus.origin, open_files.origin, scratch.origin];
    assert_eq!((origins, wall), ([Origin::Default; 5], &None));
    let (processes, memory, cpus) = (processes.value, memory.value, cpus.value);
    let (open_files, scratch) = (open_files.value, scratch.value);
    format!("{processes} processes, {memory}, {cpus} CPUs, {open_files} files, {scratch} scratch")
}

#[test]
fn defaults_follow_the_host() {
    for (host, expected) in [
        (host(8, "16G", 16_384, 1_048_576), "2048 processes, 12G, 8 CPUs, 65536 files, 3G scratch"),
        (host(1, "1G", 4096, 1024), "512 processes, 768M, 1 CPUs, 1024 files, 256M scratch"),
        (host(2, "256M", 100, 256), "100 processes, 192M, 2 CPUs, 256 files, 128M scratch"),
        (
            host(128, "1T", 4_194_304, 65_536),
            "4096 processes, 768G, 128 CPUs, 65536 files, 16G scratch",
        ),
        (host(4, "8G", 1000, 4096), "256 processes, 6G, 4 CPUs, 4096 files, 1536M scratch"),
        (host(0, "0", 0, 0), "0 processes, 0, 1 CPUs, 0 files, 0 scratch"),
    ] {
        assert_eq!(described(&Limits::scaled_to(&host)), expected, "{host:?}");
    }
}

#[track_caller]
fn check_limits(change: impl FnOnce(&mut Limits), expected: Result<(), &str>) {
    let host = host(4, "8G", 1000, 4096);
    let mut limits = Limits::scaled_to(&host);
    change(&mut limits);
    let checked = limits.check(&host).map_err(|error| error.to_string());
    assert_eq!(checked, expected.map_err(str::to_owned));
}

#[test]
fn limits_up_to_all_of_the_host_hold() {
    check_limits(|_| {}, Ok(()));
    check_limits(
        |limits| {
            limits.processes = Limit::asked(1000);
            limits.memory = Limit::asked(Bytes(8 * GIB));
            limits.cpus = Limit::asked(Cpus::whole(4));
            limits.open_files = Limit::asked(4096);
            limits.scratch = Limit::asked(Bytes(8 * GIB));
            limits.wall = Some(Span::from_millis(u64::MAX));
        },
        Ok(()),
    );
}

#[test]
fn limits_down_to_what_a_command_needs_hold() {
    check_limits(
        |limits| {
            limits.processes = Limit::asked(2);
            limits.memory = Limit::asked(Bytes(16 * MIB));
            limits.cpus = Limit::asked("0.01".parse().unwrap());
            limits.open_files = Limit::asked(20);
            limits.scratch = Limit::asked(Bytes(MIB));
            limits.wall = Some(Span::from_millis(1));
        },
        Ok(()),
    );
}

#[test]
fn limits_under_which_nothing_runs_are_refused() {
    for (processes, shown) in [(0, "0"), (1, "1")] {
        check_limits(
            |limits| limits.processes = Limit::asked(processes),
            Err(&format!(
                "limit `processes` is {shown}: a session with one command needs at least 2"
            )),
        );
    }
    for (memory, shown) in [(0, "0"), (16 * MIB - KIB, "16383K")] {
        check_limits(
            |limits| limits.memory = Limit::asked(Bytes(memory)),
            Err(&format!("limit `memory` is {shown}: a shell needs at least 16M")),
        );
    }
    check_limits(
        |limits| limits.cpus = Limit::asked("0.009".parse().unwrap()),
        Err("limit `cpus` is 0.009: the kernel's scheduler needs at least 0.01"),
    );
    check_limits(
        |limits| limits.open_files = Limit::asked(19),
        Err("limit `open_files` is 19: a POSIX program needs at least 20"),
    );
    check_limits(|limits| limits.scratch = Limit::asked(Bytes(0)), Err("limit `scratch` is zero"));
    check_limits(|limits| limits.wall = Some(Span::from_millis(0)), Err("limit `wall` is zero"));
}

#[test]
fn limits_beyond_the_host_are_refused() {
    check_limits(
        |limits| limits.processes = Limit::asked(1001),
        Err("limit `processes` is 1001: the host has 1000"),
    );
    check_limits(
        |limits| limits.memory = Limit::asked(Bytes(16 * GIB)),
        Err("limit `memory` is 16G: the host has 8G"),
    );
    check_limits(
        |limits| limits.cpus = Limit::asked("4.5".parse().unwrap()),
        Err("limit `cpus` is 4.5: the host has 4"),
    );
    check_limits(
        |limits| limits.open_files = Limit::asked(4097),
        Err("limit `open_files` is 4097: the host has 4096"),
    );
    check_limits(
        |limits| limits.scratch = Limit::asked(Bytes(9 * GIB)),
        Err("limit `scratch` is 9G: the host has 8G"),
    );
}

/// Numbers of every size, many of them whole in some unit.
fn count(units: &'static [(u64, &'static str)]) -> impl Strategy<Value = u64> {
    let unit = proptest::sample::select(units);
    prop_oneof![
        any::<u64>(),
        (0_u64..100_000, unit).prop_map(|(count, (size, _))| count.saturating_mul(size)),
    ]
}

proptest! {
    #[test]
    fn shown_sizes_read_back(bytes in count(&BYTE_UNITS)) {
        prop_assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
    }

    #[test]
    fn shown_spans_read_back(millis in count(&SPAN_UNITS)) {
        let span = Span::from_millis(millis);
        prop_assert_eq!(span.to_string().parse(), Ok(span));
    }

    #[test]
    fn shown_shares_of_processors_read_back(millis in 1..=u32::MAX) {
        let cpus = Cpus::from_millis(millis).unwrap();
        prop_assert_eq!(cpus.to_string().parse(), Ok(cpus));
    }

    #[test]
    fn defaults_hold_on_every_host_that_can_run_a_command(
        cpus in 0..=u32::MAX,
        memory in 32 * MIB..=u64::MAX,
        max_processes in 2..=u32::MAX,
        max_open_files in 20..=u32::MAX,
    ) {
        let host = HostSize { cpus, memory: Bytes(memory), max_processes, max_open_files };
        prop_assert_eq!(Limits::scaled_to(&host).check(&host), Ok(()));
    }
}
