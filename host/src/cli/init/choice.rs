//! What of all that was found a person wants: asked of each counter, state and tag by itself, since a server has more numbers than a
//! plant wants.

use std::io::{BufRead, Write as _};

use anyhow::bail;

use super::rates::Rates;
use crate::opc::guess::{Machine, State};

/// Whether something is taken; it gets the question.
pub type Ask<'a> = dyn FnMut(&str) -> anyhow::Result<bool> + 'a;

/// Asks about each thing; answers the machines that something is left of.
///
/// # Errors
/// What asking ended with.
pub fn choose(found: Vec<Machine>, rates: &Rates, ask: &mut Ask<'_>) -> anyhow::Result<Vec<Machine>> {
    let mut taken = Vec::new();
    for machine in found {
        let machine = of(machine, rates, ask)?;
        if machine.is_machine() || !machine.tags.is_empty() {
            taken.push(machine);
        }
    }
    Ok(taken)
}

fn of(machine: Machine, rates: &Rates, ask: &mut Ask<'_>) -> anyhow::Result<Machine> {
    let place = format!("{} in {}", machine.code, machine.line);
    let mut counter = |key: &str, node: Option<String>, note: &str| -> anyhow::Result<Option<String>> {
        let Some(node) = node else { return Ok(None) };
        let pace = match rates.get(&node) {
            Some(fastest) => format!("up to {fastest} units a second now"),
            None => "stands still now".to_owned(),
        };
        Ok(ask(&format!("{place}: {key} from {node} ({note}{pace})"))?.then_some(node))
    };
    let note = if machine.good_counts_all { "the defective ones too; " } else { "" };
    let good = counter("good", machine.good, note)?;
    let scrap = counter("scrap", machine.scrap, "")?;
    let state = match machine.state {
        Some(State { node, packml, now }) => {
            let taken = ask(&format!("{place}: state from {node} ({now} now)"))?;
            taken.then_some(State { node, packml, now })
        }
        None => None,
    };
    let mut tags = Vec::new();
    for (name, node) in machine.tags {
        if ask(&format!("tag {name} from {node}"))? {
            tags.push((name, node));
        }
    }
    Ok(Machine { good, scrap, state, tags, ..machine })
}

/// Asks whoever sits at the terminal; "a" takes all the rest unasked.
pub fn at_the_terminal() -> impl FnMut(&str) -> anyhow::Result<bool> {
    let mut all = false;
    move |question| {
        println!("{question}");
        while !all {
            print!("Take it? [Y/n, a: this and all that follow] ");
            std::io::stdout().flush()?;
            let mut answer = String::new();
            if std::io::stdin().lock().read_line(&mut answer)? == 0 {
                bail!("the input ended before every question was answered, so nothing was written");
            }
            match answer.trim().to_lowercase().as_str() {
                "" | "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                "a" | "all" => all = true,
                _ => println!("Answer y, n or a."),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_state_and_tag_is_asked_for_by_itself() {
        let text = |text: &str| Some(text.to_owned());
        let state = Some(State { node: "c".to_owned(), packml: true, now: "6".to_owned() });
        let tags = ["t1", "t2"].map(|tag| (format!("M1.{tag}"), tag.to_owned())).to_vec();
        let machine = |code: &str| Machine {
            code: code.to_owned(),
            line: "line-1".to_owned(),
            good: text("a"),
            scrap: text("b"),
            state: state.clone(),
            tags: tags.clone(),
            ..Machine::default()
        };
        let rates = Rates::from([("a".to_owned(), 12.0)]);
        let mut asked = Vec::new();
        let mut ask = |question: &str| {
            asked.push(question.to_owned());
            Ok(question.starts_with("M1") && !question.contains("scrap") || question.contains("M1.t2"))
        };
        let taken = choose(vec![machine("M1")], &rates, &mut ask).unwrap();
        let expected = Machine { scrap: None, tags: vec![("M1.t2".to_owned(), "t2".to_owned())], ..machine("M1") };
        assert_eq!(taken, [expected]);
        assert_eq!(asked.len(), 5);
        assert_eq!(asked[0], "M1 in line-1: good from a (up to 12 units a second now)");
        assert_eq!(asked[1], "M1 in line-1: scrap from b (stands still now)");
        assert_eq!(choose(vec![machine("M1")], &rates, &mut |_| Ok(false)).unwrap(), []);
    }
}
