//! What the drill found, as Markdown: the conditions, a table for the faults, one for the takeovers, the books, and what was not done.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use super::books;
use super::faults::Fault;
use super::rounds::{Outcome, Round, Takeover};

/// From so many figures on, the worst in a hundred is one that was measured.
const FOR_P99: usize = 100;

/// Everything that a report says.
#[derive(Debug, Clone)]
pub struct Report {
    /// The plant's name.
    pub plant: String,
    /// Whether it counts for real.
    pub real: bool,
    /// Under which conditions the figures were taken: what, and how it was.
    pub conditions: Vec<(&'static str, String)>,
    /// The length of a lease.
    pub lease: Duration,
    /// Every round, in order.
    pub rounds: Vec<Round>,
    /// Faults that were wanted and not done, and why.
    pub not_done: Vec<(Fault, String)>,
    /// Whether what was booked is what was made.
    pub books: books::Outcome,
}

impl Report {
    /// Whether every fault that was done was survived, at least one was, and the books are exact where they can be compared.
    #[must_use]
    pub fn survived(&self) -> bool {
        let failed = |round: &Round| matches!(round.outcome, Outcome::Failed(_));
        let books = matches!(self.books, books::Outcome::Exact { .. } | books::Outcome::NotCompared);
        !self.rounds.is_empty() && !self.rounds.iter().any(failed) && books
    }

    /// The report.
    #[must_use]
    pub fn markdown(&self) -> String {
        let survived = if self.survived() { "yes" } else { "no" };
        let mut text = format!("# Drill of the plant {}\n\nSurvived: {survived}. ", self.plant);
        text += &match &self.books {
            books::Outcome::Exact { units } => format!("Books exact: yes (booked {units}, made {units}).\n"),
            books::Outcome::Wrong { booked, made, .. } => format!("Books exact: no (booked {booked}, made {made}).\n"),
            books::Outcome::Unknown(why) => format!("Books exact: unknown ({why}).\n"),
            books::Outcome::NotCompared => {
                "Books exact: not compared (the drill did not start the line, and does not know what it made).\n"
                    .to_owned()
            }
        };
        if self.real {
            text += "The plant counts for real, and was drilled because somebody said so twice.\n";
        }
        if let books::Outcome::Wrong { counters, .. } = &self.books {
            text += "\n";
            counters.iter().for_each(|counter| line(&mut text, &format!("- {counter}")));
        }
        text += "\n## Conditions\n\n| what | how |\n|---|---|\n";
        self.conditions.iter().for_each(|(what, how)| row(&mut text, &[(*what).to_owned(), how.clone()]));
        self.faults(&mut text);
        self.takeovers(&mut text);
        if !self.not_done.is_empty() {
            text += "\n## Not done\n\n";
            self.not_done.iter().for_each(|(fault, why)| line(&mut text, &format!("- {fault}: {why}")));
        }
        text
    }

    /// The faults that were done, in the order in which they were.
    fn kinds(&self) -> Vec<Fault> {
        let mut kinds: Vec<Fault> = self.rounds.iter().map(|round| round.fault).collect();
        kinds.dedup();
        kinds
    }

    fn faults(&self, text: &mut String) {
        let most = self.kinds().into_iter().map(|fault| self.of(fault).count()).max().unwrap_or(0);
        let with_p99 = most >= FOR_P99;
        *text += "\n## Each fault\n\n";
        let mut head = vec!["fault", "rounds", "survived", "changed hands", "causes", "gap p50 ms", "gap max ms"];
        head.extend(["gap p50 leases", "gap max leases", "seen p50 ms", "seen max ms"]);
        if with_p99 {
            head.extend(["gap p99 ms", "seen p99 ms"]);
        }
        row(text, &head.iter().map(|head| (*head).to_owned()).collect::<Vec<_>>());
        line(text, &format!("|{}", "---|".repeat(head.len())));
        for fault in self.kinds() {
            row(text, &self.fault(fault, with_p99));
        }
    }

    fn fault(&self, fault: Fault, with_p99: bool) -> Vec<String> {
        let survived = self.of(fault).filter(|round| !matches!(round.outcome, Outcome::Failed(_))).count();
        let takeovers: Vec<&Takeover> = self.of(fault).filter_map(taken).collect();
        let causes: BTreeSet<&str> = takeovers.iter().map(|takeover| takeover.cause.as_str()).collect();
        let causes: Vec<&str> = causes.into_iter().collect();
        let sorted = |figure: &dyn Fn(&Takeover) -> Option<f64>| {
            let mut figures: Vec<f64> = takeovers.iter().filter_map(|takeover| figure(takeover)).collect();
            figures.sort_by(f64::total_cmp);
            figures
        };
        let gaps = sorted(&|takeover| takeover.gap_ms);
        let leases = sorted(&|takeover| takeover.gap_leases);
        let seen = sorted(&|takeover| takeover.seen.map(millis));
        let mut cells = vec![fault.to_string(), self.of(fault).count().to_string(), survived.to_string()];
        cells.push(takeovers.len().to_string());
        cells.push(if causes.is_empty() { "-".to_owned() } else { causes.join(", ") });
        cells.extend([figure(percentile(&gaps, 50), 0), figure(percentile(&gaps, 100), 0)]);
        cells.extend([figure(percentile(&leases, 50), 2), figure(percentile(&leases, 100), 2)]);
        cells.extend([figure(percentile(&seen, 50), 0), figure(percentile(&seen, 100), 0)]);
        if with_p99 {
            let p99 = |figures: &[f64]| percentile(figures, 99).filter(|_| figures.len() >= FOR_P99);
            cells.extend([figure(p99(&gaps), 0), figure(p99(&seen), 0)]);
        }
        cells
    }

    fn of(&self, fault: Fault) -> impl Iterator<Item = &Round> {
        self.rounds.iter().filter(move |round| round.fault == fault)
    }

    fn takeovers(&self, text: &mut String) {
        *text += "\n## Each round\n\n";
        *text += "| fault | round | from | to | cause | gap ms | gap leases | owed | seen ms | seen leases |\n";
        *text += "|---|---|---|---|---|---|---|---|---|---|\n";
        for round in &self.rounds {
            let mut cells = vec![round.fault.to_string(), round.number.to_string()];
            match &round.outcome {
                Outcome::Taken(takeover) => cells.extend(self.takeover(takeover)),
                Outcome::Kept => cells.extend(["-", "-", "kept", "-", "-", "-", "-", "-"].map(str::to_owned)),
                Outcome::Failed(_) => cells.extend(["-", "-", "FAILED", "-", "-", "-", "-", "-"].map(str::to_owned)),
            }
            row(text, &cells);
        }
        for round in &self.rounds {
            if let Outcome::Failed(why) = &round.outcome {
                // A log's end has many lines; a fence keeps them from being read as Markdown.
                line(text, &format!("\n{}, round {}:\n\n```\n{}\n```", round.fault, round.number, why.trim_end()));
            }
        }
    }

    fn takeover(&self, takeover: &Takeover) -> [String; 8] {
        let lease = self.lease.as_secs_f64();
        [
            takeover.from.clone(),
            takeover.to.clone(),
            takeover.cause.clone(),
            figure(takeover.gap_ms, 0),
            figure(takeover.gap_leases, 2),
            takeover.owed.map_or_else(|| "unknown".to_owned(), |owed| owed.to_string()),
            figure(takeover.seen.map(millis), 0),
            figure(takeover.seen.map(|seen| seen.as_secs_f64() / lease), 2),
        ]
    }
}

fn taken(round: &Round) -> Option<&Takeover> {
    match &round.outcome {
        Outcome::Taken(takeover) => Some(takeover),
        Outcome::Kept | Outcome::Failed(_) => None,
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// The smallest of `sorted` that so many in a hundred do not exceed.
fn percentile(sorted: &[f64], hundredths: usize) -> Option<f64> {
    let rank = (sorted.len() * hundredths).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

fn figure(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
}

fn line(text: &mut String, line: &str) {
    // Writing into a string cannot fail.
    let _ = writeln!(text, "{line}");
}

/// A row of a table. A cell's own bars and line ends would end it.
fn row(text: &mut String, cells: &[String]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
    line(text, &format!("| {} |", cells.join(" | ")));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(cause: &str, gap_ms: Option<f64>, seen_ms: Option<u64>) -> Outcome {
        Outcome::Taken(Takeover {
            from: "drill-a".to_owned(),
            to: "drill-b".to_owned(),
            cause: cause.to_owned(),
            gap_ms,
            gap_leases: gap_ms.map(|gap| gap / 2000.0),
            owed: Some(3),
            seen: seen_ms.map(Duration::from_millis),
        })
    }

    fn round(fault: Fault, number: u32, outcome: Outcome) -> Round {
        Round { fault, number, outcome }
    }

    fn report(rounds: Vec<Round>, books: books::Outcome) -> Report {
        Report {
            plant: "bottling".to_owned(),
            real: false,
            conditions: vec![("host", "0.1.0".to_owned()), ("lease", "2 s in PostgreSQL".to_owned())],
            lease: Duration::from_secs(2),
            rounds,
            not_done: vec![(Fault::Skew, "faketime is not installed".to_owned())],
            books,
        }
    }

    #[test]
    fn a_drill_that_was_survived_is_told_with_all_its_figures() {
        let rounds = vec![
            round(Fault::Kill, 1, taken("death", Some(41.0), Some(60))),
            round(Fault::Kill, 2, taken("death", Some(80.0), Some(100))),
            round(Fault::Freeze, 1, taken("expiry", None, Some(2100))),
            round(Fault::SlowStore, 1, Outcome::Kept),
        ];
        let report = report(rounds, books::Outcome::Exact { units: 321 });
        assert!(report.survived());
        let wanted = "\
# Drill of the plant bottling

Survived: yes. Books exact: yes (booked 321, made 321).

## Conditions

| what | how |
|---|---|
| host | 0.1.0 |
| lease | 2 s in PostgreSQL |

## Each fault

| fault | rounds | survived | changed hands | causes | gap p50 ms | gap max ms | gap p50 leases | gap max leases | seen p50 ms | seen max ms |
|---|---|---|---|---|---|---|---|---|---|---|
| kill | 2 | 2 | 2 | death | 41 | 80 | 0.02 | 0.04 | 60 | 100 |
| freeze | 1 | 1 | 1 | expiry | - | - | - | - | 2100 | 2100 |
| slow-store | 1 | 1 | 0 | - | - | - | - | - | - | - |

## Each round

| fault | round | from | to | cause | gap ms | gap leases | owed | seen ms | seen leases |
|---|---|---|---|---|---|---|---|---|---|
| kill | 1 | drill-a | drill-b | death | 41 | 0.02 | 3 | 60 | 0.03 |
| kill | 2 | drill-a | drill-b | death | 80 | 0.04 | 3 | 100 | 0.05 |
| freeze | 1 | drill-a | drill-b | expiry | - | - | 3 | 2100 | 1.05 |
| slow-store | 1 | - | - | kept | - | - | - | - | - |

## Not done

- skew: faketime is not installed
";
        assert_eq!(report.markdown(), wanted);
    }

    #[test]
    fn a_failed_round_and_wrong_books_are_said_first_and_explained() {
        let rounds = vec![round(Fault::Cut, 1, Outcome::Failed("node drill-b ended\nits log | ends".to_owned()))];
        let counters = vec!["FILL01 good: booked 7, made 8".to_owned()];
        let report = report(rounds, books::Outcome::Wrong { booked: 7, made: 8, counters });
        assert!(!report.survived());
        let text = report.markdown();
        let head = "# Drill of the plant bottling\n\nSurvived: no. Books exact: no (booked 7, made 8).\n\n\
                    - FILL01 good: booked 7, made 8\n\n## Conditions\n";
        assert!(text.starts_with(head), "{text}");
        assert!(text.contains("| cut | 1 | - | - | FAILED | - | - | - | - | - |\n"), "{text}");
        assert!(text.contains("\ncut, round 1:\n\n```\nnode drill-b ended\nits log | ends\n```\n"), "{text}");
    }

    #[test]
    fn nothing_rehearsed_is_nothing_survived() {
        assert!(!report(Vec::new(), books::Outcome::Exact { units: 0 }).survived());
    }

    #[test]
    fn books_that_could_not_be_compared_are_not_exact_unless_nobody_knows_what_was_made() {
        let kept = || vec![round(Fault::SlowStore, 1, Outcome::Kept)];
        let unknown = report(kept(), books::Outcome::Unknown("no node is left to ask".to_owned()));
        assert!(!unknown.survived());
        assert!(unknown.markdown().contains("Survived: no. Books exact: unknown (no node is left to ask).\n"));
        let elsewhere = report(kept(), books::Outcome::NotCompared);
        assert!(elsewhere.survived());
        assert!(elsewhere.markdown().contains("Survived: yes. Books exact: not compared (the drill did not start"));
    }

    #[test]
    fn the_worst_in_a_hundred_is_told_of_a_hundred_rounds_only() {
        let rounds = |count: u32| -> Vec<Round> {
            (1..=count).map(|n| round(Fault::Kill, n, taken("death", Some(f64::from(n)), Some(n.into())))).collect()
        };
        assert!(!report(rounds(99), books::Outcome::NotCompared).markdown().contains("p99"));
        let text = report(rounds(100), books::Outcome::NotCompared).markdown();
        assert!(text.contains("| gap p99 ms | seen p99 ms |\n"), "{text}");
        assert!(
            text.contains("| kill | 100 | 100 | 100 | death | 50 | 100 | 0.03 | 0.05 | 50 | 100 | 99 | 99 |\n"),
            "{text}"
        );
    }

    #[test]
    fn a_cell_cannot_end_its_table() {
        let mut text = String::new();
        row(&mut text, &["a|b".to_owned(), "c\nd".to_owned()]);
        assert_eq!(text, "| a\\|b | c d |\n");
    }
}
